"""What has to hold after any number of crashes, checked from the records of all processes."""

from __future__ import annotations

import sqlite3
from collections import Counter, defaultdict
from contextlib import closing
from pathlib import Path

import msgspec

from tests.crash.records import read_records

_SHOWN = 5


class Findings(msgspec.Struct):
    """What was counted, and every violation found."""

    messages: int = 0
    answers: Counter[str] = msgspec.field(default_factory=Counter)
    processed: int = 0
    repeated: int = 0  # processed again, flagged
    most_attempts: int = 0
    unflagged: list[str] = []
    lost: list[str] = []  # answered as acked or kept, never processed
    contradicted: list[str] = []  # other answers that are not true
    out_of_order: list[str] = []
    unanswered: list[str] = []
    given_up: list[str] = []  # dead letters that nobody declined
    left: int = 0  # in the mailboxes
    dead: int = 0
    postponed: int = 0
    declined: int = 0
    busy: Counter[str] = msgspec.field(default_factory=Counter)

    @property
    def violations(self) -> list[str]:
        found = [
            f"{len(each)} {name}: {', '.join(each[:_SHOWN])}"
            for name in (
                "unflagged",
                "lost",
                "contradicted",
                "out_of_order",
                "unanswered",
                "given_up",
            )
            if (each := getattr(self, name))
        ]
        return [*found, *([f"{self.left} left in the mailboxes"] if self.left else [])]

    def __str__(self) -> str:
        answers = ", ".join(f"{count} {state}" for state, count in sorted(self.answers.items()))
        busy = ", ".join(f"{count} {rule}" for rule, count in sorted(self.busy.items()))
        return (
            f"{self.messages} messages ({answers}), {self.processed} processed, "
            f"{self.repeated} of them again and flagged (up to attempt {self.most_attempts}), "
            f"{len(self.unflagged)} not flagged; "
            f"{self.postponed} postponed, {self.declined} declined, {self.dead} dead letters; "
            f"{len(self.lost)} lost, {len(self.out_of_order)} out of order"
            f"{f'; told to wait: {busy}' if busy else ''}"
        )


class Received(msgspec.Struct):
    """What all workers have recorded."""

    attempts: dict[str, list[int]]  # of what was processed
    first: dict[tuple[str, str, str], list[tuple[str, int]]]  # per file, sender and receiver
    postponed: Counter[str]
    declined: set[str]


def check(folder: Path) -> Findings:
    """Return what the records say after everything has come to an end."""
    findings = check_records(folder, read_dead(folder))
    findings.left = count_left(folder)
    return findings


def check_records(folder: Path, dead: set[str]) -> Findings:
    """Return what the records say, if these messages are dead letters."""
    received = read_received(folder)
    findings = Findings(dead=len(dead), given_up=sorted(dead - received.declined))
    findings.processed = sum(map(len, received.attempts.values()))
    findings.postponed, findings.declined = received.postponed.total(), len(received.declined)
    for message_id, attempts in received.attempts.items():
        findings.most_attempts = max(findings.most_attempts, *attempts)
        findings.repeated += sum(attempt > 1 for attempt in attempts[1:])
        findings.unflagged += [message_id for attempt in attempts[1:] if attempt < 2]
    moved = set(received.postponed)
    for path in sorted(folder.glob("*.sent")):
        moved |= _check_sender(path, received, dead, findings)
    _check_order(received, moved, findings)
    return findings


def _check_sender(path: Path, received: Received, dead: set[str], findings: Findings) -> set[str]:
    """Compare what a sender was told with what happened; return what it was told to send later."""
    states: dict[str, str] = {}
    busy: set[str] = set()
    for words in read_records(path):
        if words[0] == "sent":
            states[words[3]] = ""
        elif words[0] == "busy":
            busy.add(words[1])
            findings.busy[words[2]] += 1
        else:
            states[words[1]] = words[2]
    findings.messages += len(states)
    findings.answers.update(states.values())
    for message_id, state in states.items():
        is_processed = message_id in received.attempts
        is_declined = message_id in received.declined
        if not state:
            findings.unanswered.append(message_id)
        elif state in ("kept", "retrying", "acked"):
            # Kept first and declined later: nobody was told, so it is a dead letter.
            is_dead = state != "acked" and is_declined and message_id in dead
            if not is_processed and not is_dead:
                findings.lost.append(f"{message_id} ({state})")
        elif state != "refused" or not is_declined:
            findings.contradicted.append(f"{message_id} ({state})")
    return busy


def _check_order(received: Received, moved: set[str], findings: Findings) -> None:
    for firsts in received.first.values():
        last = 0
        for message_id, number in firsts:
            if message_id in moved:
                continue
            if number < last:
                findings.out_of_order.append(f"{message_id} after {last}")
            last = max(last, number)


def read_received(folder: Path) -> Received:
    received = Received(defaultdict(list), defaultdict(list), Counter(), set())
    for path in sorted(folder.glob("*.got")):
        for words in read_records(path):
            message_id, attempt = words[1], int(words[2])
            if words[0] == "postponed":
                received.postponed[message_id] += 1
            elif words[0] == "declined":
                received.declined.add(message_id)
            else:
                if message_id not in received.attempts:
                    pair = (path.name, words[3], words[4])
                    received.first[pair].append((message_id, int(words[5])))
                received.attempts[message_id].append(attempt)
    return received


def open_mail(path: Path) -> sqlite3.Connection:
    """Return the database of the mailboxes, to read from."""
    return sqlite3.connect(f"file:{path}?mode=ro", uri=True)


def count_left(folder: Path) -> int:
    """Return how much mail is in all mailboxes."""
    with closing(open_mail(folder / "state" / "mail.db")) as db:
        return int(db.execute("SELECT count(*) FROM mail").fetchone()[0])


def read_dead(folder: Path) -> set[str]:
    """Return the ids of the messages that are dead letters."""
    with closing(open_mail(folder / "state" / "mail.db")) as db:
        return {message_id for (message_id,) in db.execute("SELECT message_id FROM dead")}
