"""What the webhook bridge keeps on the disk."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from busd import ConfigError
from busd_plugins.hook.store import (
    Request,
    Store,
    StoreFailed,
    StoreLimits,
    TooManyReplies,
)

pytestmark = pytest.mark.anyio


class Clock:
    def __init__(self) -> None:
        self.now = 1_000.0

    def __call__(self) -> float:
        self.now += 1
        return self.now


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "hook.db"


@pytest.fixture
def store(file: Path) -> Iterator[Store]:
    with closing(Store(file, clock=Clock())) as opened:
        yield opened


def request(name: str, chat_id: str = "ci/1") -> Request:
    return Request(name, "ci", b"digest", chat_id)


async def state_of(store: Store, name: str) -> str:
    found = await store.find("ci", name)
    return found.state if found else "unknown"


def test_only_its_owner_can_read_it(store: Store, file: Path) -> None:
    assert file.stat().st_mode & 0o777 == 0o600


async def test_a_reply_belongs_to_the_request_that_it_names(store: Store) -> None:
    for name in ("a", "b"):
        await store.accept(await store.begin(request(name), ""))
    found = await store.find_for("ci/1", "b")
    assert found is not None
    assert found.id == "b"


async def test_a_reply_that_names_none_belongs_to_the_oldest_that_waits(store: Store) -> None:
    """Agents that know only the first version of the protocol answer in this way."""
    for name in ("a", "b"):
        await store.accept(await store.begin(request(name), ""))
    for expected in ("a", "b", "b"):  # at last an agent speaks by itself
        found = await store.find_for("ci/1", "")
        assert found is not None
        assert found.id == expected
        await store.add(found, f"reply to {expected}", b"{}", is_prompt=False)
    assert await store.find_for("ci/2", "a") is None


async def test_the_answer_to_a_question_continues_its_request(store: Store) -> None:
    asking = await store.begin(request("a"), "")
    await store.accept(asking)
    await store.add(asking, "q", b"{}", is_prompt=True)
    assert await state_of(store, "a") == "asking"
    answer = await store.begin(request("b"), "", prompt_id="p")
    assert answer.subject == "a"
    assert await state_of(store, "a") == "asking"  # the bus has not accepted it yet
    await store.accept(answer)
    assert await state_of(store, "a") == "accepted"
    for reply_to in ("b", "a", ""):
        found = await store.find_for("ci/1", reply_to)
        assert found is not None
        assert found.id == "a"


async def test_a_reply_is_kept_once(store: Store) -> None:
    asked = await store.begin(request("a"), "")
    for body in (b"1", b"2"):
        await store.add(asked, "nonce", body, is_prompt=False)
    assert [each.body for each in await store.replies("a")] == [b"1"]


async def test_a_request_has_so_many_replies_and_no_more(store: Store) -> None:
    asked = await store.begin(request("a"), "")
    for number in range(100):
        await store.add(asked, str(number), b"{}", is_prompt=False)
    with pytest.raises(TooManyReplies):
        await store.add(asked, "one more", b"{}", is_prompt=False)
    large = await store.begin(request("b"), "")
    for number in range(4):
        await store.add(large, str(number), b"x" * 1024 * 1024, is_prompt=False)
    with pytest.raises(TooManyReplies):
        await store.add(large, "one more", b"x", is_prompt=False)


async def test_what_is_old_or_too_much_is_forgotten(file: Path) -> None:
    clock = Clock()
    limits = StoreLimits(seconds=1_000, requests=3, reply_bytes=100, trim_every=1)
    with closing(Store(file, limits, clock)) as store:
        for number in range(6):
            await store.begin(request(str(number)), f"key {number}")
        known = [number for number in range(6) if await store.find("ci", str(number))]
        assert known == [2, 3, 4, 5]  # one more than that, until the next one comes
        asked = await store.find("ci", "5")
        assert asked is not None
        await store.add(asked, "large", b"x" * 101, is_prompt=False)
        await store.begin(request("6"), "")
        assert not await store.replies("5")
        clock.now += 2_000
        await store.begin(request("7"), "")
        assert await store.find("ci", "6") is None


async def test_a_full_disk_changes_nothing(store: Store) -> None:
    db = store._db
    pages = db.execute("PRAGMA page_count").fetchone()[0]
    db.execute(f"PRAGMA max_page_count = {pages}")
    asked = await store.begin(request("a"), "key")
    with pytest.raises(StoreFailed, match="full"):
        await store.add(asked, "large", b"x" * 100_000, is_prompt=False)
    db.execute("PRAGMA max_page_count = 1000000")
    assert await state_of(store, "a") == "new"
    await store.add(asked, "large", b"x" * 100_000, is_prompt=False)
    assert await state_of(store, "a") == "answered"


def test_a_damaged_file_is_moved_aside(file: Path, caplog: pytest.LogCaptureFixture) -> None:
    file.write_bytes(b"no database at all" * 1_000)
    with caplog.at_level(logging.ERROR), closing(Store(file)) as store:
        assert store._db.execute("SELECT count(*) FROM request").fetchone() == (0,)
    assert "is damaged" in caplog.text
    assert len(list(file.parent.glob("hook.db.corrupt-*"))) == 1


def test_a_file_of_another_version_or_a_link_is_refused(file: Path, tmp_path: Path) -> None:
    with closing(Store(file)) as store:
        store._db.execute("PRAGMA user_version = 9")
    with pytest.raises(ConfigError, match="another version"):
        Store(file)
    link = tmp_path / "link.db"
    link.symlink_to(file)
    with pytest.raises(ConfigError, match=r"link\.db"):
        Store(link)
