"""What an agent that has ended still owes, as whoever started it reads it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest
from msgspec import Raw

from busd import UnfinishedTurn, finish_turns, unfinished_turns
from busd.agent.ledger import Asked, Ledger, TurnKey
from busd.agent.unfinished import MAX_TURNS


def asked(message_id: str, **payload: object) -> Asked:
    return Asked(message_id, "tg:1", Raw(json.dumps({"type": "tg_message", **payload}).encode()))


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "data").mkdir()
    return tmp_path / "data" / "turns.jsonl"


def test_messages_that_were_taken_and_not_done_are_unfinished(tmp_path: Path, file: Path) -> None:
    ledger = Ledger(file)
    for each in ("m1", "m2", "m3"):
        ledger.take(asked(each))
    ledger.take(asked("m4", messageId="its-own"))
    ledger.start(TurnKey("tg:1", "m2"))
    ledger.finish([TurnKey("tg:1", "m1"), TurnKey("tg:1", "m3")])
    assert unfinished_turns(tmp_path) == [
        UnfinishedTurn("m2", "m2", "tg:1"),
        UnfinishedTurn("m4", "its-own", "tg:1"),
    ]


def test_a_number_by_which_its_author_knows_a_message_stays_a_number(
    tmp_path: Path, file: Path
) -> None:
    file.write_text('{"id": "m1", "state": "taken", "payload": {"messageId": 4711}}\n')
    assert unfinished_turns(tmp_path) == [UnfinishedTurn("m1", 4711)]


def test_what_is_finished_from_outside_is_not_taken_up(tmp_path: Path, file: Path) -> None:
    Ledger(file).take(asked("m1"))
    with file.open("ab") as cut_off:
        cut_off.write(b'{"id": "m2", "sta')
    finish_turns(tmp_path, unfinished_turns(tmp_path))
    assert unfinished_turns(tmp_path) == []
    later = Ledger(file)
    assert later.unanswered() == []
    assert later.knows(TurnKey("tg:1", "m1"))


def test_another_sender_may_use_the_same_id(tmp_path: Path, file: Path) -> None:
    ledger = Ledger(file)
    ledger.take(Asked("m1", "tg:1", Raw(b"{}")))
    assert not ledger.knows(TurnKey("tg:2", "m1"))
    ledger.take(Asked("m1", "tg:2", Raw(b"{}")))
    ledger.finish([TurnKey("tg:1", "m1")])
    for each in (ledger, Ledger(file)):
        assert each.unanswered() == [Asked("m1", "tg:2", Raw(b"{}"))]
    assert unfinished_turns(tmp_path) == [UnfinishedTurn("m1", "m1", "tg:2")]


def test_the_ledger_of_an_earlier_version_is_understood(tmp_path: Path, file: Path) -> None:
    taken = '{"id": "m1", "state": "taken", "sender": "tg:1", "payload": {}}'
    file.write_text(f'{taken}\n{{"id": "m1", "state": "done"}}\n')
    assert Ledger(file).unanswered() == []
    assert unfinished_turns(tmp_path) == []


def test_an_agent_without_a_ledger_owes_nothing(tmp_path: Path) -> None:
    assert unfinished_turns(tmp_path) == []
    assert unfinished_turns(tmp_path / "nowhere") == []


@pytest.mark.parametrize("place", ["link", "pipe", "folder", "linked folder"])
def test_what_an_agent_has_put_in_place_of_its_ledger_is_not_opened(
    place: str, tmp_path: Path, file: Path
) -> None:
    other = tmp_path / "other"
    other.mkdir()
    Ledger(other / "turns.jsonl").take(asked("m1"))
    before = (other / "turns.jsonl").read_bytes()
    match place:
        case "link":
            file.symlink_to(other / "turns.jsonl")
        case "pipe":
            os.mkfifo(file)
        case "folder":
            file.mkdir()
        case _:
            file.parent.rmdir()
            file.parent.symlink_to(other)
    assert unfinished_turns(tmp_path) == []
    with pytest.raises(OSError):  # each place has one of its own
        finish_turns(tmp_path, [UnfinishedTurn("m1", "m1")])
    assert (other / "turns.jsonl").read_bytes() == before


def test_a_ledger_full_of_nonsense_costs_no_more_than_its_limit(tmp_path: Path, file: Path) -> None:
    with file.open("wb") as written:
        written.write(b"[" * 100_000 + b"\n" + b"\0" * 1000 + b"\n")
        for number in range(10 * MAX_TURNS):
            line = {"id": f"m{number}", "state": "taken", "payload": {"messageId": "x" * 10_000}}
            written.write(json.dumps(line).encode() + b"\n")
    turns = unfinished_turns(tmp_path)
    assert len(turns) == MAX_TURNS
    assert max(len(str(turn.reply_to)) for turn in turns) == 256
