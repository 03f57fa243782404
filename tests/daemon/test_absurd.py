"""A configuration that cannot be used is refused as a whole, with one line, and nothing ends."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.daemon.absurd import ABSURD, Put
from tests.daemon.conftest import Reloading
from tests.daemons import Loop, open_daemon, run_busd, serve_args
from tests.wire_peers import connect


@pytest.mark.parametrize(("put", "complaint"), ABSURD.values(), ids=ABSURD)
def test_an_absurd_configuration_is_refused_at_start_and_by_config_check(
    tmp_path: Path, put: Put, complaint: str
) -> None:
    args = serve_args(tmp_path)
    config = tmp_path / "conf.d" / "x.toml"
    config.parent.mkdir()
    put(config)
    code, said = run_busd(args, tmp_path)
    assert code == 78, said
    [line] = said.splitlines()
    assert complaint in line
    assert len(line) < 1_000
    code, said = run_busd(["config", "check", "--config", str(tmp_path / "busd.toml")], tmp_path)
    assert (code, said.splitlines()) == (78, [line])


def test_absurd_configurations_are_refused_and_the_daemon_works_on(
    reloading: Reloading,
) -> None:
    reloading.daemon.is_blamed = True  # a refusal is logged as an error
    folder = reloading.daemon.folder / "conf.d"
    with_peer = connect(reloading.daemon, "unix")
    with_peer.initialize("agent:witness")
    for name, (put, complaint) in ABSURD.items():
        if "certificate" in name:
            continue  # this daemon listens without TLS: it reads no certificate
        folder.mkdir()
        put(folder / "x.toml")
        [said] = reloading.hang_up()
        assert said["event"] == "settings.refused", name
        assert complaint in said["reason"], name
        assert "\n" not in said["reason"]
        shutil.rmtree(folder)
        with_peer.expect_nothing()
    [said] = reloading.hang_up()
    assert said["event"] == "settings.reloaded"
    assert said["changed"] == []
    with_peer.close()


LARGEST = {
    "drain_seconds": 366 * 86_400,
    "wire.max_frame_bytes": 2**30,
    "wire.max_hello_bytes": 2**30,
    "wire.max_queue_bytes": 2**30,
    "wire.max_unread_bytes": 2**30,
    "wire.max_connections": 10_000_000,
    "wire.first_request_seconds": 366 * 86_400,
    "wire.linger_seconds": 366 * 86_400,
    "wire.ping_seconds": 366 * 86_400,
    "delivery.ack_seconds": 366 * 86_400,
    "delivery.max_unanswered": 10_000_000,
    "delivery.max_held_bytes": 2**30,
    "journal.keep_days": 36_525,
    "journal.max_bytes": 2**40,
    "journal.write_seconds": 366 * 86_400,
    "plugins.handler_seconds": 366 * 86_400,
    "plugins.start_seconds": 366 * 86_400,
    "plugins.stop_seconds": 366 * 86_400,
    "agents.ready_seconds": 366 * 86_400,
    "agents.keep_days": 36_525,
}


def test_a_daemon_works_with_the_largest_settings(loop: Loop) -> None:
    with open_daemon(loop, LARGEST) as daemon:
        for transport in ("unix", "tcp", "ws"):
            peer = connect(daemon, transport)
            peer.initialize(f"agent:{transport}")
            peer.answer_to(peer.send_message("agent:nobody"))
            peer.close()
