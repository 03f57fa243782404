"""`bus.reload` and `bus.stop` on every loop: answered before anything else happens to the asker."""

from __future__ import annotations

from contextlib import ExitStack

from tests.daemon.conftest import Reloading
from tests.daemons import Loop, open_daemon
from tests.wire_peers import join_by


def test_an_admin_who_reloads_is_told_what_changed(reloading: Reloading, opened: ExitStack) -> None:
    admin = join_by(reloading.daemon, "unix", "admin", opened)
    reloading.config.write_text('policy = "open"\ndrain_seconds = 3.0\nlog_level = "error"\n')
    done = admin.call("bus.reload", {})
    assert (done["refused"], done["changed"]) == ("", ["drain_seconds"])
    reloading.daemon.is_blamed = True  # the operator's mistake is an error in the log
    reloading.config.write_text("drain_seconds = 0\n")
    done = admin.call("bus.reload", {})
    assert done["refused"].endswith("drain_seconds must be more than 0, not 0.0")
    assert done["changed"] == []


def test_an_admin_who_stops_the_bus_is_answered_and_so_is_everybody_else(
    loop: Loop, opened: ExitStack
) -> None:
    with open_daemon(loop) as daemon:
        admin, alice, bob = (join_by(daemon, "unix", name, opened) for name in ("x", "a", "b"))
        sent = alice.send_message("b")
        message = bob.next_message()
        assert admin.call("bus.stop", {}) == {"withinSeconds": 32.0, "startsOnDemand": False}
        refused = admin.answer_to(admin.request("bus.reload", {}))
        assert refused["error"]["data"]["rule"] == "busy"
        bob.answer(message, {"success": True})
        assert alice.answer_to(sent)["result"]["acks"][0]["success"]
        admin.expect_close()
        assert daemon.wait() == 0
