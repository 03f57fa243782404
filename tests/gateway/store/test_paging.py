"""Pages of entries, compared with a list that is sliced."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from busd.gateway.store_limits import StoreLimits
from busd.gateway.stored import Page
from tests.gateway.store.opened import Opened, words

MAX_ENTRIES = 30
numbers = st.integers(0, 60)


class Pages(RuleBasedStateMachine):
    """One conversation that keeps 30 entries; the model is a list of (number, id, text)."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        path = Path(self._folder.name) / "gateway.db"
        self._store = Opened(path, StoreLimits(entries=MAX_ENTRIES))
        self._session = self._store.create()
        self._kept: list[tuple[int, str, str]] = []
        self._last = 0

    def teardown(self) -> None:
        self._store.close()
        self._folder.cleanup()

    @rule(ids=st.lists(st.sampled_from([f"e{number}" for number in range(60)]), max_size=20))
    def keep(self, ids: list[str]) -> None:
        self._store.do(lambda s: [s.keep(self._session, words(each, "x" * 100)) for each in ids])
        for each in ids:
            if each not in [name for _, name, _ in self._kept]:
                self._last += 1
                self._kept = [*self._kept, (self._last, each, "x" * 100)][-MAX_ENTRIES:]

    @precondition(lambda self: self._kept)
    @rule(data=st.data(), text=st.sampled_from(["short", "y" * 500]))
    def amend(self, data: st.DataObject, text: str) -> None:
        number, name, _ = data.draw(st.sampled_from(self._kept))
        amended = self._store.do(lambda s: s.amend(self._session, words(name, text)))
        assert amended
        assert amended.number == number
        place = [each[0] for each in self._kept].index(number)
        self._kept[place] = (number, name, text)

    @rule()
    def restart(self) -> None:
        self._store.close()

    @rule(after=st.integers(0, 60), since=numbers, before=numbers, last=numbers)
    def page(self, after: int, since: int, before: int, last: int) -> None:
        name = f"e{after}" if after else ""
        known = {each: number for number, each, _ in self._kept}
        lower = known.get(name, since)
        found = self._store.do(
            lambda s: s.page(self._session, after=name, since=since, before=before, last=last)
        )
        chosen = [each for each in self._kept if lower < each[0] < (before or 10**9)]
        assert _shown(found) == chosen[max(len(chosen) - last, 0) :]
        assert found.has_more == (len(chosen) > last)

    @invariant()
    def everything_is_there(self) -> None:
        found = self._store.do(lambda s: s.page(self._session, last=100))
        assert _shown(found) == self._kept
        totals = self._store.do(lambda s: s.totals())
        assert totals.entries == len(self._kept)


TestPages = Pages.TestCase
TestPages.settings = settings(max_examples=30, stateful_step_count=20, deadline=None)


@contextmanager
def _store_of(sizes: list[int]) -> Iterator[tuple[Opened, str]]:
    with tempfile.TemporaryDirectory() as folder:
        store = Opened(Path(folder) / "gateway.db")
        session = store.create()
        store.keep(session, *(words(str(n), "x" * size) for n, size in enumerate(sizes, 1)))
        yield store, session
        store.close()


@settings(max_examples=20, deadline=None)
@given(sizes=st.lists(st.integers(0, 3_000), max_size=30), max_bytes=st.integers(0, 5_000))
def test_a_page_is_bounded_and_pages_together_are_complete(
    sizes: list[int], max_bytes: int
) -> None:
    with _store_of(sizes) as (store, session):
        found: list[str] = []
        before, has_more = 0, True
        while has_more:
            page = store.calls.page(session, before=before, max_bytes=max_bytes)
            assert len(page.entries) == 1 or sum(len(e.text) for e in page.entries) <= max_bytes
            found[:0] = [each.id for each in page.entries]
            before, has_more = page.entries[0].number if page.entries else 0, page.has_more
        assert found == [str(number) for number, _ in enumerate(sizes, 1)]


def test_numbers_from_outside_may_be_any(store: Opened) -> None:
    session = store.create()
    store.keep(session, words("a"))
    for before in (-5, 2**63, 10**30):
        page = store.calls.page(session, before=before, last=10**30)
        assert [each.id for each in page.entries] == ["a"]
    assert store.calls.page(session, last=-1) == Page([], True)


def _shown(page: Page) -> list[tuple[int, str, str]]:
    return [(each.number, each.id, each.text) for each in page.entries]
