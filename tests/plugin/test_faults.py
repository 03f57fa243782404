"""Bad plugins: each is named, none touches anybody else."""

from __future__ import annotations

import json
import os
import time
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.daemons import PATIENCE_SECONDS, Loop
from tests.http_pages import fetch
from tests.plugin.conftest import Ask, Plugged, joined, open_plugged
from tests.plugin.sources import GREET


@pytest.mark.parametrize(
    ("address", "answer"),
    [
        ("bad:raise", "plugin faulty failed"),
        ("bad:exit", "plugin faulty failed"),
        ("bad:hang", "plugin faulty did not answer in time"),
        ("bad:nonsense", "plugin faulty failed"),
        ("bad:ack", "plugin faulty failed"),
        ("bad:unwritable", "plugin faulty failed"),
    ],
)
def test_a_fault_is_a_failed_ack_without_details_and_is_blamed_by_name(
    shared: Plugged, ask: Ask, address: str, answer: str
) -> None:
    before = shared.listed()["faulty"]["faults"]
    ack = ask(address, {"type": "x"})
    assert (ack["success"], ack["message"], ack["payload"]) == (False, answer, {})
    after = shared.listed()["faulty"]
    assert after["faults"] > before
    assert after["state"] == "running"


def test_a_fault_is_told_in_the_log_and_the_metrics(shared: Plugged, ask: Ask) -> None:
    ask("bad:raise", {"type": "x"})
    status = shared.listed()["faulty"]
    assert status["lastFault"] == "x to bad:raise: ValueError: the secret is 12345"
    page = fetch(shared.daemon, "/metrics").text
    assert f'busd_plugin_faults_total{{plugin="faulty"}} {float(status["faults"])}' in page
    assert 'busd_plugin_faults_total{plugin="syntax"} 1.0' in page
    ask("app:greet", {"type": "hello", "content": {"text": "x"}})
    assert 'busd_plugin_handled_total{plugin="greet"}' in fetch(shared.daemon, "/metrics").text
    blamed = [line for line in shared.daemon.log().splitlines() if "plugin.failed" in line]
    assert any(json.loads(line)["plugin"] == "faulty" for line in blamed)


def test_a_task_that_raises_ends_neither_the_plugin_nor_the_bus(shared: Plugged, ask: Ask) -> None:
    assert ask("bad:leak", {})["payload"] == {"leaked": True}
    end = time.monotonic() + PATIENCE_SECONDS
    while shared.listed()["faulty"]["lastFault"] != "task fail: RuntimeError: leaked":
        assert time.monotonic() < end
    assert ask("bad:leak", {})["success"]


def test_a_hook_that_raises_keeps_nobody_out(shared: Plugged, opened: ExitStack) -> None:
    peer = joined(shared, "cursed:1", opened)
    assert peer.call("ping")["timestamp"]
    assert shared.listed()["faulty"]["faults"]


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("syntax", "import failed: SyntaxError: "),
        ("raises", "import failed: RuntimeError: no luck"),
        ("exits", "import failed: SystemExit: 1"),
        ("hangs", "import took longer than 2 s"),
        ("nothing", "there is no Plugin called plugin in it"),
        ("notaplugin", "there is no Plugin called plugin in it"),
        (
            "misnamed",
            "import failed: ValueError: a plugin's name is like my_plugin-2, not 'No Good'",
        ),
        ("twin", "the name greet is taken by "),
        ("zredefines", "message type hello is defined by plugin greet"),
        ("zbub", "message type tg_message is defined by busd"),
        ("zaddress", "app:greet is taken by plugin greet"),
        ("zmethod", "method bus.trace is taken by the bus"),
        ("zzmethod", "method good.double is taken by plugin good"),
        ("slow_start", "on_start took longer than 2 s"),
        ("bad_start", "on_start: OSError: no disk"),
        ("asyncjoined", "import failed: TypeError: f must be a plain function"),
        ("nokind", "import failed: TypeError: f must take a struct with @message, or Raw"),
    ],
)
def test_a_plugin_that_cannot_run_is_listed_with_the_reason(
    shared: Plugged, name: str, reason: str
) -> None:
    status = shared.listed()[name]
    assert status["state"] == "faulty"
    assert status["lastFault"].startswith(reason)
    assert status["faults"] == 1


def test_those_that_run_are_listed_with_all_they_do(shared: Plugged) -> None:
    status = shared.listed()["good"]
    origin = str(shared.plugins / "good")
    assert (status["name"], status["version"], status["origin"]) == ("good", "2.0", origin)
    assert status["state"] == "running"
    assert {"good:one", "good:two:*", "good:send"} <= set(status["addresses"])
    assert status["types"] == ["ask"]
    assert status["methods"] == ["good.double", "good.secret"]
    assert shared.listed()["greet"]["about"] == "Greet: answer every `hello` with a greeting."
    assert shared.listed()["faulty"]["hooks"] == ["on_peer_joined"]


def test_one_that_is_disabled_or_private_is_not_even_imported(shared: Plugged) -> None:
    listed = shared.listed()
    assert listed["unwanted"]["state"] == "disabled"
    assert listed["bub"]["state"] == "disabled"
    assert "_private" not in listed


def test_a_plugin_that_anybody_can_write_is_refused(loop: Loop, tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    more = tmp_path / "more"
    more.mkdir()
    (more / "greet.py").write_text(GREET)
    more.chmod(0o777)
    owned = {"owned.py": GREET, "whole/__init__.py": GREET, "whole/part.py": "", "fine.py": GREET}
    with open_plugged(loop, {}, {"plugins.folders": []}) as plugged:
        for name, text in owned.items():
            plugged.write(name, text)
        (plugged.plugins / "owned.py").chmod(0o666)
        (plugged.plugins / "whole/part.py").chmod(0o602)
        config = plugged.daemon.folder / "busd.toml"
        folders = json.dumps([str(plugged.plugins), str(more)])
        config.write_text(
            f'policy = "open"\nplugins.disabled = ["bub"]\nplugins.folders = {folders}\n'
        )
        plugged.reload()
        listed = plugged.listed()
        for name, place in [
            ("owned", plugged.plugins / "owned.py"),
            ("whole", plugged.plugins / "whole/part.py"),
            ("more", more),
        ]:
            assert listed[name]["state"] == "faulty"
            expected = f"everybody may write {place}; run: chmod go-w {place}"
            assert listed[name]["lastFault"] == expected
        assert listed["fine"]["state"] == "running"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_plugin_of_another_user_is_refused(loop: Loop) -> None:
    with open_plugged(loop, {"fine.py": GREET}) as plugged:
        plugged.write("theirs.py", GREET)
        os.chown(plugged.plugins / "theirs.py", 65_534, 65_534)
        plugged.reload()
        status = plugged.listed()["theirs"]
        assert status["lastFault"].endswith(
            "theirs.py belongs to uid 65534; chown it, or remove it"
        )


def test_a_plugin_with_too_much_to_do_is_busy(loop: Loop) -> None:
    waiting = GREET.replace(
        "    if not", "    import anyio\n    await anyio.sleep(0.2)\n    if not"
    )
    with (
        open_plugged(loop, {"greet.py": waiting}, {"plugins.max_running": 2}) as plugged,
        ExitStack() as opened,
    ):
        peer = joined(plugged, "tg:1", opened)
        hello = {"type": "hello", "content": {"text": "x"}}
        requests = [peer.send_message("app:greet", hello) for _ in range(3)]
        acks = [peer.answer_to(request)["result"]["acks"][0] for request in requests]
        assert [ack["success"] for ack in acks] == [True, True, False]
        assert acks[2]["message"] == "peer is busy"
        assert acks[2]["shouldRetry"]


def test_a_plugin_that_takes_longer_than_the_bus_waits_is_no_answer_in_time(loop: Loop) -> None:
    slow = GREET.replace("    if not", "    import anyio\n    await anyio.sleep(2)\n    if not")
    with (
        open_plugged(loop, {"greet.py": slow}, {"delivery.ack_seconds": 0.2}) as plugged,
        ExitStack() as opened,
    ):
        peer = joined(plugged, "tg:1", opened)
        hello = {"type": "hello", "content": {"text": "x"}}
        [ack] = peer.answer_to(peer.send_message("app:greet", hello))["result"]["acks"]
        assert (ack["success"], ack["message"]) == (False, "no answer in time")
