"""The thread of the store: operations that wait share a commit, and fail each for itself."""

from __future__ import annotations

import gc
import sqlite3
import threading
from collections.abc import Callable, Coroutine
from contextlib import closing
from pathlib import Path
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from busd.errors import ConfigError
from busd.gateway.store import Store
from busd.gateway.store_limits import StoreLimits
from busd.gateway.store_thread import StoreThread
from busd.gateway.stored import Kept, StoreBusy, StoreFailed, StoreFull
from tests.gateway.store.opened import DAY, NOW, conversation, open_turn, words

PATIENCE_SECONDS = 20.0
Body = Callable[[StoreThread], Coroutine[Any, Any, None]]


@pytest.fixture(params=["asyncio", "uvloop", "trio"])
def run(request: pytest.FixtureRequest, path: Path) -> Callable[..., None]:
    """Run a test with an open store, on each loop."""

    def run_one(body: Body, limits: StoreLimits | None = None) -> None:
        async def main() -> None:
            with anyio.fail_after(PATIENCE_SECONDS):
                async with StoreThread(path, limits or StoreLimits()) as thread:
                    await body(thread)

        is_uvloop = request.param == "uvloop"
        backend = "trio" if request.param == "trio" else "asyncio"
        options = {"use_uvloop": is_uvloop} if backend == "asyncio" else {}
        anyio.run(main, backend=backend, backend_options=options)

    return run_one


def keep(name: str, session: str = "lobby-ann") -> Callable[[Store], Kept]:
    return lambda store: store.keep(session, words(name))


class Gate:
    """An operation that occupies the thread until it is opened."""

    def __init__(self) -> None:
        self._is_entered = threading.Event()
        self._is_open = threading.Event()

    def __call__(self, _: Store) -> None:
        self._is_entered.set()
        assert self._is_open.wait(PATIENCE_SECONDS)

    async def entered(self) -> None:
        while not self._is_entered.is_set():
            await anyio.sleep(0.001)  # poll: it is another thread that sets it

    def open(self) -> None:
        self._is_open.set()


async def many(thread: StoreThread, count: int) -> None:
    """Return when so many operations wait."""
    while thread.waiting < count:
        await anyio.lowlevel.checkpoint()


def test_an_operation_returns_what_it_has_found(run: Callable[..., None], path: Path) -> None:
    async def body(thread: StoreThread) -> None:
        created = await thread.run(lambda store: store.create(conversation()))
        assert created == await thread.run(lambda store: store.find("ann", "lobby"))
        kept = await thread.run(keep("a"))
        assert (kept.entry.number, kept.is_duplicate) == (1, False)
        with closing(sqlite3.connect(path)) as other:  # it is committed
            assert other.execute("SELECT count(*) FROM entry").fetchone() == (1,)

    run(body)


def test_operations_that_wait_share_one_commit_and_keep_their_order(
    run: Callable[..., None],
) -> None:
    async def body(thread: StoreThread) -> None:
        await thread.run(lambda store: store.create(conversation()))
        kept: list[int] = []

        async def keep_one(number: int) -> None:
            kept.append((await thread.run(keep(str(number)))).entry.number)

        gate = Gate()
        statements: list[str] = []
        await thread.run(_trace(thread, statements))
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(thread.run, gate)
            await gate.entered()
            for number in range(200):
                tasks.start_soon(keep_one, number)
            await many(thread, 201)
            gate.open()
        assert sorted(kept) == list(range(1, 201))
        # The one of `_trace`, that of the gate, and one for all.
        assert [each for each in statements if each == "COMMIT"] == ["COMMIT"] * 3
        assert thread.waiting == 0

    run(body)


def _trace(thread: StoreThread, statements: list[str]) -> Callable[[Store], None]:
    """Record the statements that the database executes."""
    return lambda _: thread._file.open().set_trace_callback(statements.append)


def test_an_operation_that_fails_does_not_fail_the_others(run: Callable[..., None]) -> None:
    async def body(thread: StoreThread) -> None:
        await thread.run(lambda store: store.create(conversation()))
        outcomes: dict[str, object] = {}

        def begin_two(store: Store) -> None:
            for name in ("t1", "t2"):
                store.put_turn("lobby-ann", open_turn(name))

        async def attempt(name: str, operation: Callable[[Store], object]) -> None:
            try:
                outcomes[name] = await thread.run(operation)
            except Exception as problem:
                outcomes[name] = problem

        gate = Gate()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(thread.run, gate)
            await gate.entered()
            tasks.start_soon(attempt, "a", keep("a"))
            tasks.start_soon(attempt, "full", begin_two)
            tasks.start_soon(attempt, "bug", lambda store: 1 // 0)
            tasks.start_soon(attempt, "b", keep("b"))
            await many(thread, 5)
            gate.open()
        assert isinstance(outcomes["full"], StoreFull)
        assert isinstance(outcomes["bug"], ZeroDivisionError)
        page = await thread.run(lambda store: store.page("lobby-ann"))
        assert sorted(each.id for each in page.entries) == ["a", "b"]
        assert await thread.run(lambda store: store.turns("lobby-ann")) == []

    run(body, StoreLimits(open_turns=1))


def test_more_than_the_limit_does_not_wait(run: Callable[..., None]) -> None:
    async def body(thread: StoreThread) -> None:
        gate = Gate()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(thread.run, gate)
            await gate.entered()
            for _ in range(2):
                tasks.start_soon(thread.run, Store.totals)
            await many(thread, 3)
            with pytest.raises(StoreBusy):
                await thread.run(Store.totals)
            gate.open()
        await thread.run(Store.totals)

    run(body, StoreLimits(waiting=3))


def test_a_cancelled_caller_leaves_an_operation_that_is_executed(
    run: Callable[..., None],
) -> None:
    async def body(thread: StoreThread) -> None:
        await thread.run(lambda store: store.create(conversation()))
        gate = Gate()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(thread.run, gate)
            await gate.entered()
            with anyio.move_on_after(0.01) as scope:
                await thread.run(keep("a"))
            assert scope.cancelled_caught
            gate.open()
        kept = await thread.run(keep("a"))
        assert kept.is_duplicate
        assert thread.waiting == 0

    run(body)


def test_closing_executes_what_waits(run: Callable[..., None], path: Path) -> None:
    kept: list[int] = []

    async def body(thread: StoreThread) -> None:
        await thread.run(lambda store: store.create(conversation()))

        async def keep_one(name: str) -> None:
            kept.append((await thread.run(keep(name))).entry.number)

        gate = Gate()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(thread.run, gate)
            await gate.entered()
            for number in range(50):
                tasks.start_soon(keep_one, str(number))
            await many(thread, 51)
            tasks.start_soon(thread.close)
            gate.open()
        assert len(kept) == 50
        with pytest.raises(StoreFailed, match="it is closed"):
            await thread.run(keep("late"))
        await thread.close()  # again

    run(body)
    assert not Path(f"{path}-wal").exists()  # the database was closed
    assert "busd-store" not in [each.name for each in threading.enumerate()]


def test_a_store_can_be_closed_while_it_is_still_checked(
    run: Callable[..., None],
) -> None:
    async def body(thread: StoreThread) -> None:
        await thread.close()

    run(body)


def test_a_transaction_that_fails_fails_all_of_it_and_the_next_one_succeeds(
    run: Callable[..., None], path: Path
) -> None:
    """Another program that writes to the file makes ours wait, then give up."""

    async def body(thread: StoreThread) -> None:
        await thread.run(lambda store: store.create(conversation()))
        await thread.run(_impatient(thread))
        failed: list[str] = []

        async def attempt(name: str) -> None:
            with pytest.raises(StoreFailed) as caught:
                await thread.run(keep(name))
            failed.append(str(caught.value))

        with closing(sqlite3.connect(path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            async with anyio.create_task_group() as tasks:
                for name in ("a", "b"):
                    tasks.start_soon(attempt, name)
            assert thread.is_failing
            other.execute("ROLLBACK")
        assert len(failed) == 2
        assert str(path) not in "".join(failed)
        kept = [await thread.run(keep(name)) for name in ("a", "b", "c")]
        assert [each.entry.number for each in kept] == [1, 2, 3]
        assert not thread.is_failing

    run(body)


def _impatient(thread: StoreThread) -> Callable[[Store], None]:
    """Make the database wait for others a moment only."""

    def operation(_: Store) -> None:
        thread._file.open().execute("PRAGMA busy_timeout = 10").fetchall()

    return operation


def test_upkeep_does_all_that_is_due(run: Callable[..., None], path: Path) -> None:
    now = NOW

    async def body(_: StoreThread) -> None:
        nonlocal now
        limits = StoreLimits(keep_days=1.0)
        async with StoreThread(path.parent / "other.db", limits, lambda: now) as thread:
            await thread.run(lambda store: store.create(conversation()))
            names = [str(number) for number in range(1_200)]
            await thread.run(lambda store: [keep(name)(store) for name in names])
            now += 2 * DAY
            await thread.upkeep(lambda: {"lobby-ann"})
            totals = await thread.run(Store.totals)
            assert (totals.entries, totals.conversations) == (0, 1)
            await thread.upkeep()
            assert (await thread.run(Store.totals)).conversations == 0

    run(body)


def test_a_loop_that_ends_without_closing_leaves_no_trace(path: Path) -> None:
    async def main() -> None:
        thread = await StoreThread(path, StoreLimits()).__aenter__()
        await thread.run(lambda store: store.create(conversation()))

    anyio.run(main)
    gc.collect()


def test_a_store_that_cannot_be_opened_says_so_at_once(path: Path) -> None:
    path.parent.mkdir()
    path.symlink_to("/etc/passwd")
    with pytest.raises(ConfigError, match="it is a symbolic link"):
        StoreThread(path, StoreLimits())
