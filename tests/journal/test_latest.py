"""What was just answered is in the activity log when somebody looks, however busy its writer is."""

from __future__ import annotations

from contextlib import ExitStack

from tests.daemons import Loop, open_daemon
from tests.wire_peers import join_by


def test_a_message_is_traced_as_soon_as_it_was_answered(loop: Loop, opened: ExitStack) -> None:
    with open_daemon(loop, {"journal.write_seconds": 0.001}) as daemon:  # it writes all the time
        alice = join_by(daemon, "unix", "alice", opened)
        missing = []
        for number in range(300):
            sent = [alice.send_message("x", messageId=f"m{number}-{each}") for each in "abc"]
            for request in sent:
                alice.answer_to(request)
            if not alice.call("bus.trace", {"messageId": f"m{number}-c"})["attempts"]:
                missing.append(number)
        assert missing == []
