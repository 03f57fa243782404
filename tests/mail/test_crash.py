"""kill -9 while mail is kept and delivered, and crashes of the simulated disk."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from busd.bus.mail import Kept, MailLimits, StoreFailed, Totals
from busd.bus.mail_store import Keep
from busd.mail.simulated import SimulatedDisk
from tests.mail.crash import Rounds
from tests.mail.stores import mail


def test_a_store_can_be_killed_at_any_time(tmp_path: Path) -> None:
    rounds = Rounds(tmp_path / "mail.db", seed=1)
    rounds.run(60)
    assert rounds.confirmed
    assert rounds.unconfirmed


def test_a_crash_of_the_simulated_disk_loses_what_was_not_synced() -> None:
    disk = SimulatedDisk(MailLimits())
    outcomes: list[Any] = []
    store = disk.start()
    for name in ("durable", "lost"):
        store.submit(Keep(mail(name)), outcomes.append)
    store.sync(1)
    disk.crash(is_synced=False)
    store.sync()
    store.deliver()
    assert outcomes == []  # nobody is left to hear of it
    assert disk.start().totals == Totals(1, 13)


def test_a_crash_of_the_simulated_disk_may_come_after_the_last_write() -> None:
    disk = SimulatedDisk(MailLimits())
    outcomes: list[Any] = []
    disk.start().submit(Keep(mail("a")), outcomes.append)
    disk.crash(is_synced=True)
    assert outcomes == []
    assert disk.start().totals == Totals(1, 13)


def test_the_simulated_disk_fails_and_recovers() -> None:
    store = SimulatedDisk(MailLimits()).start()
    outcomes: list[Any] = []
    for name in ("a", "b"):
        store.submit(Keep(mail(name)), outcomes.append)
    store.fail("disk full", 1)
    assert store.is_failing
    store.sync()
    store.deliver()
    assert outcomes == [StoreFailed("disk full"), Kept(1, True, "b")]
    assert not store.is_failing


def test_a_torn_page_loses_what_the_bus_was_not_told_of() -> None:
    disk = SimulatedDisk(MailLimits())
    outcomes: list[Any] = []
    store = disk.start()
    for name in ("told", "not told", "not synced"):
        store.submit(Keep(mail(name)), outcomes.append)
        if name != "not synced":
            store.sync()
        if name == "told":
            store.deliver()
    disk.crash(is_synced=False, is_torn=True)
    assert len(outcomes) == 1
    assert disk.start().totals == Totals(1, 13)
