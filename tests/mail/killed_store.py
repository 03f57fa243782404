"""Stores of mail that are used until they are killed.

For each line of stdin, "path run", a child is started that keeps, settles and buries mail as fast
as it can. Its pid comes first on stdout, then a line for what it tries ("? keep NAME") and for
what it was told is done ("! keep NAME").
"""

from __future__ import annotations

import os
import random
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from busd.bus.mail import Box, Mail, MailFailure
from busd.bus.mail_store import Bury, Claim, Keep, Operation, Read, SettleOne
from tests.mail.stores import do, mail
from tests.mail.waiting import Waiting

MAX_OPEN = 40  # operations at a time
MAX_MAIL = 200  # more is not kept, so that a check takes a moment only


def mail_named(name: str) -> Mail:
    """Return the mail of a name; all of it depends on the name. Every other one has a key."""
    number = sum(position * ord(letter) for position, letter in enumerate(name, 7))
    payload = b'{"text":"%s"}' % (name.encode() * (1 + number % 700))
    return mail(name, payload=payload, idempotency_key=name if number % 2 else "")


def use_forever(path: Path, run: str) -> None:
    chance = random.Random(run)
    subject = Waiting(path)
    box = do(subject, Claim("agent:a", "h1"))
    there = {each.message_id: each.id for each in do(subject, Read(box, limit=10**6))}
    number = 0
    while True:
        for _ in range(chance.randrange(1, MAX_OPEN)):
            number += 1
            if len(there) < MAX_MAIL and chance.random() < 0.6:
                _try_keep(subject, f"{run}.{number}", there)
            elif there:
                _try_end(subject, box, there, chance)
        while subject.store.waiting > chance.randrange(MAX_OPEN):
            subject.deliver()


def _try_keep(subject: Waiting, name: str, there: dict[str | int, int]) -> None:
    def done(kept: Any) -> None:
        there[name] = kept.id

    _try(subject, f"keep {name}", Keep(mail_named(name)), done)


def _try_end(
    subject: Waiting, box: Box, there: dict[str | int, int], chance: random.Random
) -> None:
    name = chance.choice(list(there))
    number = there.pop(name)
    if chance.random() < 0.8:
        _try(subject, f"settle {name}", SettleOne(box, number, b"done"), lambda _: None)
    else:
        _try(subject, f"bury {name}", Bury(box, number, "bad", 1.0), lambda _: None)


def _try(
    subject: Waiting, what: str, operation: Operation[Any], then: Callable[[Any], None]
) -> None:
    def done(outcome: Any) -> None:
        assert not isinstance(outcome, MailFailure), outcome
        os.write(1, f"! {what}\n".encode())
        then(outcome)

    os.write(1, f"? {what}\n".encode())
    subject.store.submit(operation, done)


def main() -> None:
    for line in sys.stdin:
        path, run = line.rsplit(maxsplit=1)
        child = os.fork()
        if not child:
            os.write(1, f"{os.getpid()}\n".encode())
            use_forever(Path(path), run)
        os.waitpid(child, 0)
        os.write(1, b"killed\n")


if __name__ == "__main__":
    main()
