"""A state directory that cannot be used, and what the log says of messages."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.daemons import PATIENCE_SECONDS, open_daemon
from tests.wire_peers import connect

# The program is loaded first: another user may not even be able to read it.
AS_NOBODY = """
import os, busd.daemon, busd.ops.logs
from busd.cli.main import main
os.setuid(65534)
main()
"""


def serve(
    state: Path, before: Callable[[], None] | None = None, program: tuple[str, ...] = ("-m", "busd")
) -> subprocess.CompletedProcess[str]:
    """Run a bus that is not going to start."""
    words = ["serve", "--listen", "tcp://127.0.0.1:0", "--state", str(state)]
    return subprocess.run(
        [sys.executable, *program, *words],
        preexec_fn=before,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


def test_a_full_disk_is_said_in_one_line(tmp_path: Path) -> None:
    def no_room() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, 0))

    ended = serve(tmp_path / "state", no_room)
    assert ended.returncode == 1  # not 78: the service manager tries again
    assert ended.stderr.startswith("busd: cannot ")
    assert str(tmp_path / "state") in ended.stderr
    assert ended.stderr.count("\n") == 1


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become somebody else")
def test_the_state_of_another_user_is_not_touched(
    opened: ExitStack, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not pytest's: nobody else may look into its folders.
    folder = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="busd-test-")))
    folder.chmod(0o755)
    state = folder / "state"
    state.mkdir(mode=0o700)

    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))
    ended = serve(state, program=("-c", AS_NOBODY))
    assert ended.returncode == 78
    assert ended.stderr == f"busd: cannot use state directory {state}: Permission denied\n"
    assert list(state.iterdir()) == []

    hidden = state / "config"
    monkeypatch.setenv("XDG_CONFIG_HOME", str(hidden))
    ended = serve(folder / "mine", program=("-c", AS_NOBODY))
    assert ended.returncode == 78
    file = hidden / "busd/busd.toml"
    assert ended.stderr == f"busd: cannot look for {file}: Permission denied\n"


@pytest.mark.parametrize(("level", "said"), [("debug", 2), ("info", 0)])
def test_messages_are_logged_at_debug_only_and_without_their_words(level: str, said: int) -> None:
    with open_daemon("uvloop", log_level=level) as daemon:
        peer = connect(daemon, "unix")
        peer.initialize("agent:a")
        for to in ("agent:nobody", "agent:a"):
            peer.send_message(to, {"text": "a secret"})
        assert peer.next_json()["result"]["undelivered"] == "no route"
        peer.next_message()  # the second one has come: both are logged
        lines = [line for line in daemon.log().splitlines() if "message.handed_over" in line]
        peer.close()
        assert "a secret" not in daemon.log()
    assert [json.loads(line)["to"] for line in lines] == ["agent:nobody", "agent:a"][:said]
