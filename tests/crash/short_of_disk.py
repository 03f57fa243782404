"""A daemon whose disk gets full: `how folder`, a report on stdout.

`disk` fills a small file system that is mounted for this process only (run it under `unshare -m`),
`limit` makes the kernel refuse to let any file of the daemon grow.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.crash.invariants import count_left
from tests.daemons import PATIENCE_SECONDS, Daemon, Settings, open_daemon
from tests.journal.short_of_disk import full_disk
from tests.wire_peers import Json, Peer, join_by

SETTINGS: Settings = {"journal.enabled": False, "mail.first_retry_seconds": 0.05}
_IN_FLIGHT = 8  # as many as a new mailbox hands over at once
WAITING = [f"waiting {number}" for number in range(30)]


def send_durably(peer: Peer, to: str, name: str) -> int:
    """Send, and return the id of the request."""
    payload = {"text": "x" * 5_000}
    return peer.send_message(to, payload, messageId=name, delivery={"durable": True})


def receive(peer: Peer, *, is_acked: bool = True) -> Json:
    """Return the next message, acked."""
    message = peer.next_message()
    if is_acked:
        peer.answer(message, {"success": True})
    return message


def wait_until_empty(folder: Path) -> int:
    """Wait until the mailboxes are empty; return how much is left if that takes too long."""
    deadline = time.monotonic() + PATIENCE_SECONDS / 3
    while (left := count_left(folder)) and time.monotonic() < deadline:
        time.sleep(0.02)  # the disk cannot be awaited
    return left


def wait_for_log(daemon: Daemon, event: str) -> None:
    """Wait until the daemon has logged an event."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while event not in daemon.log():
        assert time.monotonic() < deadline, daemon.log()
        time.sleep(0.01)


@contextmanager
def no_room(how: str, daemon: Daemon) -> Iterator[None]:
    """Let the daemon write nothing."""
    if how == "disk":
        with full_disk(daemon.folder / "state"):
            yield
        return
    old = resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, (4096, old[1]))
    yield
    resource.prlimit(daemon.process.pid, resource.RLIMIT_FSIZE, old)


def report(how: str, folder: Path) -> dict[str, object]:
    """Return what a sender and two workers notice of a full disk, and what is left of it."""
    with ExitStack() as opened:
        daemon = opened.enter_context(open_daemon("uvloop", SETTINGS, folder=folder))
        daemon.is_blamed = True  # it reports that it cannot write
        sender = join_by(daemon, "unix", "app:s", opened)
        requests = [
            send_durably(sender, to, f"{to} {name}")
            for name in WAITING
            for to in ("agent:w", "agent:busy")
        ]
        kept = [sender.answer_to(each)["result"]["undelivered"] for each in requests]
        busy = join_by(daemon, "unix", "agent:busy", opened)
        in_flight = [receive(busy, is_acked=False) for _ in range(_IN_FLIGHT)]
        with no_room(how, daemon):
            busy.answer(in_flight[0], {"success": True})
            wait_for_log(daemon, "mail.failed")
            requests = [send_durably(sender, "agent:w", f"refused {n}") for n in range(50)]
            errors = [sender.answer_to(each)["error"] for each in requests]
            for message in in_flight[1:]:
                busy.answer(message, {"success": True})
            plain = sender.send_message("app:echo", messageId="plain")
            answer = sender.answer_to(plain)["result"]
            worker = join_by(daemon, "unix", "agent:w", opened)
            worker.call("ping")
            time.sleep(1.2)  # so that the bus does what it does each second
        after = send_durably(sender, "agent:w", "agent:w after")
        got = [receive(worker)["params"]["messageId"] for _ in [*WAITING, "after"]]
        acked_after = sender.answer_to(after)["result"]["mail"]["state"]
        rest = [receive(busy)["params"]["messageId"] for _ in WAITING[_IN_FLIGHT:]]
        left = wait_until_empty(folder)
        log = [json.loads(line)["event"] for line in daemon.log().splitlines()]
        more = [each["params"]["messageId"] for each in busy.waiting]
    return {
        "kept": sorted(set(kept)),
        "codes": sorted({error["code"] for error in errors}),
        "rules": sorted({error["data"]["rule"] for error in errors}),
        "messages": sorted({error["message"] for error in errors}),
        "plain meanwhile": answer["undelivered"],
        "acked after": acked_after,
        "in order": got == [f"agent:w {name}" for name in [*WAITING, "after"]],
        "rest in order": rest == [f"agent:busy {name}" for name in WAITING[_IN_FLIGHT:]],
        "received again": more,
        "left": left,
        "log": sorted(set(log)),
        "first and last": [log[0], log[-1]],
    }


def main() -> None:
    how, folder = sys.argv[1], Path(sys.argv[2])
    if how == "disk":
        (folder / "state").mkdir(mode=0o700)
        options = "size=4m,mode=700"
        mount = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder / "state")]
        subprocess.run(mount, check=True)
    print(json.dumps(report(how, folder)))


if __name__ == "__main__":
    main()
