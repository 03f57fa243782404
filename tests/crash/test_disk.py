"""The daemon and its mailboxes on a disk that is full, read-only or damaged."""

from __future__ import annotations

import json
import resource
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest

from busd.mail.tables import LAYOUT
from tests.crash.processes import BUS, Order, Processes
from tests.crash.short_of_disk import receive, send_durably
from tests.daemons import PATIENCE_SECONDS, run_busd, serve_args, start_busd
from tests.journal.test_short_of_disk import ROOT, can_mount
from tests.wire_peers import LinePeer, open_unix

needs_mount = pytest.mark.skipif(not can_mount(), reason="needs root")


class Place:
    """A folder in which daemons run one after the other."""

    def __init__(self, processes: Processes, folder: Path) -> None:
        self._processes = processes
        self.folder = folder
        self.args = serve_args(folder, settings={"journal.enabled": False})
        self.database = folder / "state" / "mail.db"
        self.log = folder / "log"

    @contextmanager
    def running(self) -> Iterator[Place]:
        self._processes.start(Order(BUS, "", self.args, str(self.log)))
        assert self._processes.wait_until_ready(BUS), self.log.read_text()
        yield self
        self._processes.signal(BUS, signal.SIGTERM)
        assert self._processes.wait(BUS) == 0, self.log.read_text()

    @contextmanager
    def join(self, name: str) -> Iterator[LinePeer]:
        peer = LinePeer(open_unix(str(self.folder / "bus.sock")))
        peer.initialize(name)
        yield peer
        peer.close()

    def keep(self, count: int) -> None:
        """Keep messages for an address where nobody is."""
        with self.join("app:s") as sender:
            names = [f"kept {number}" for number in range(count)]
            requests = [send_durably(sender, "agent:w", name) for name in names]
            for request in requests:
                assert sender.answer_to(request)["result"]["undelivered"] == "kept"

    def receive(self) -> str:
        """Return the id of the message that is delivered next."""
        with self.join("agent:w") as worker:
            message_id: str = receive(worker)["params"]["messageId"]
            worker.call("ping")  # the ack was read
        return message_id


@pytest.fixture
def place(processes: Processes, tmp_path: Path) -> Place:
    """The folder of a daemon that has kept a message and was stopped."""
    place = Place(processes, tmp_path)
    with place.running():
        place.keep(50)
    return place


@pytest.mark.parametrize("how", [pytest.param("disk", marks=needs_mount), "limit"])
def test_a_full_disk_refuses_senders_and_loses_nothing(how: str, tmp_path: Path) -> None:
    command = ["unshare", "-m"] if how == "disk" else []
    command += [sys.executable, "-m", "tests.crash.short_of_disk", how, str(tmp_path)]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert shown.returncode == 0, shown.stderr
    report: dict[str, Any] = json.loads(shown.stdout)
    assert report == {
        "kept": ["kept"],
        "codes": [-32004],
        "rules": ["mail.failed"],
        "messages": ["mail cannot be written; the log of the bus has the details"],
        "plain meanwhile": "no route",
        "acked after": "acked",
        "in order": True,
        "rest in order": True,
        "received again": [],
        "left": 0,
        "log": ["mail.failed", "mail.recovered"],
        "first and last": ["mail.failed", "mail.recovered"],
    }


@needs_mount
def test_a_read_only_database_ends_the_start_with_one_line(place: Place) -> None:
    database = place.database
    mount = f"mount --bind {database} {database} && mount -o remount,ro,bind {database}"
    command = ["unshare", "-m", "sh", "-c", f'{mount} && exec "$@"', "sh"]
    shown = subprocess.run(
        [*command, sys.executable, "-m", "busd", *place.args],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert shown.returncode == 78
    [line] = shown.stderr.splitlines()
    assert f"cannot open the mailboxes {database}: Read-only file system" in line
    with place.running():
        assert place.receive() == "kept 0"


def test_the_database_of_another_version_ends_the_start_with_one_line(place: Place) -> None:
    _set_version(place.database, 99)
    code, said = run_busd(place.args, place.folder)
    assert code == 78
    [line] = said.splitlines()
    assert f"cannot open the mailboxes {place.database}: another version of busd wrote it" in line
    _set_version(place.database, LAYOUT.version)
    with place.running():
        assert place.receive() == "kept 0"


def _set_version(database: Path, version: int) -> None:
    with closing(sqlite3.connect(database)) as db:
        db.execute(f"PRAGMA user_version = {version}")


def _damage_header(content: bytearray) -> None:
    content[:100] = b"x" * 100


def _damage_pages(content: bytearray) -> None:
    begin, end = len(content) // 2, len(content) - 4096
    content[begin:end] = b"x" * (end - begin)


@pytest.mark.parametrize("damage", [_damage_header, _damage_pages])
def test_a_damaged_database_is_moved_aside_and_the_bus_goes_on(
    damage: Callable[[bytearray], None], place: Place
) -> None:
    content = bytearray(place.database.read_bytes())
    damage(content)
    place.database.write_bytes(content)
    with place.running():
        place.keep(1)
        assert place.receive() == "kept 0"
    [aside] = place.database.parent.glob("mail.db.corrupt-*Z")
    assert len(aside.read_bytes()) == len(content)
    lines = [json.loads(line) for line in place.log.read_text().splitlines()]
    [moved] = [line for line in lines if line["event"] == "mail.moved_aside"]
    assert (moved["level"], moved["to"]) == ("error", str(aside))


def test_a_bus_that_cannot_write_when_it_starts_does_not_blame_the_settings(place: Place) -> None:
    def forbid() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, resource.RLIM_INFINITY))

    process = start_busd(place.args, place.folder, forbid)
    code = process.wait(PATIENCE_SECONDS)
    assert process.stdout
    process.stdout.close()
    assert code not in (0, 78)
    assert "cannot open the mailboxes" in place.log.read_text()
    with place.running():
        assert place.receive() == "kept 0"
