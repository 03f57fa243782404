"""The states of a session of Engine.IO: each transition, and each event in every other state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import anyio
import pytest

from busd.gateway.engine_session import EngineSession, State
from busd.gateway.identity import STRANGER
from busd.gateway.limits import Budget
from busd.gateway.ws_connection import WebSocketConnection
from tests.gateway.host.test_limits import Clock

pytestmark = pytest.mark.anyio


class Stream:
    """A WebSocket that notes what is sent."""

    def __init__(self) -> None:
        self.sent: list[bytes] = []
        self.closed: list[int] = []

    def send_text(self, frame: bytes) -> None:
        self.sent.append(frame)

    def close(self, code: int, reason: str = "") -> None:
        self.closed.append(code)

    def admit(self, *limits: Any) -> None:
        pass


class Tried(EngineSession):
    """A session, its clock, its WebSocket, and how often it has ended."""

    def __init__(self) -> None:
        self.clock, self.stream, self.ends = Clock(), Stream(), 0
        super().__init__("sid", STRANGER, 25, self._note_end, self.clock)
        self.admit(1_000, 5_000, Budget(10**9))

    def _note_end(self, session: EngineSession) -> None:
        self.ends += 1

    @property
    def web_socket(self) -> WebSocketConnection:
        return cast(WebSocketConnection, self.stream)


EVENTS: dict[str, Callable[[Tried], object]] = {
    "probe": lambda session: session.probe(session.web_socket),
    "upgrade": lambda session: session.start_stream(session.web_socket),
    "probe lost": lambda session: session.end_probe(),
    "close": lambda session: session.close(1012, "restart"),
    "client gone": lambda session: session.end(),
    "poll": lambda session: session.take_output(),
    "ping": lambda session: session.ping(),
}
PATHS: dict[State, list[str]] = {
    State.POLLING: [],
    State.PROBING: ["probe"],
    State.STREAMING: ["upgrade"],
    State.LEAVING: ["close"],
    State.CLOSED: ["client gone"],
}
TABLE = {
    (State.POLLING, "probe"): State.PROBING,
    (State.POLLING, "upgrade"): State.STREAMING,  # begun with a WebSocket
    (State.POLLING, "close"): State.LEAVING,
    (State.POLLING, "client gone"): State.CLOSED,
    (State.PROBING, "upgrade"): State.STREAMING,
    (State.PROBING, "probe lost"): State.POLLING,
    (State.PROBING, "close"): State.LEAVING,
    (State.PROBING, "client gone"): State.CLOSED,
    (State.STREAMING, "close"): State.CLOSED,
    (State.STREAMING, "client gone"): State.CLOSED,
    (State.LEAVING, "poll"): State.CLOSED,
    (State.LEAVING, "ping"): State.CLOSED,
    (State.LEAVING, "client gone"): State.CLOSED,
}


def in_state(state: State) -> Tried:
    session = Tried()
    for event in PATHS[state]:
        EVENTS[event](session)
    assert session.state is state
    return session


@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("state", State)
async def test_each_event_in_each_state(state: State, event: str) -> None:
    session = in_state(state)
    EVENTS[event](session)
    assert session.state is TABLE.get((state, event), state)
    assert (session.ends > 0) == (not session.is_open)


async def test_a_probe_is_answered_and_ends_the_poll_that_waits() -> None:
    session = in_state(State.POLLING)
    answers: list[bytes | None] = []

    async def poll() -> None:
        assert await session.await_output()
        answers.append(session.take_output())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(poll)
        await anyio.sleep(0.01)
        assert not answers
        assert session.probe(session.web_socket)
    assert answers == [b"6"]
    assert session.stream.sent == [b"3probe"]


async def test_what_waits_for_a_poll_goes_over_the_web_socket_after_the_upgrade() -> None:
    session = in_state(State.PROBING)
    session.send(b"4one")
    session.send(b"4two")
    assert session.start_stream(session.web_socket)
    session.send(b"4three")
    assert session.stream.sent == [b"3probe", b"4one", b"4two", b"4three"]


async def test_there_is_no_upgrade_while_a_request_is_processed() -> None:
    session = in_state(State.PROBING)
    session.is_working = True
    assert not session.start_stream(session.web_socket)


async def test_a_poll_gets_all_that_waits() -> None:
    session = in_state(State.POLLING)
    session.send(b"4one")
    session.send(b"4two")
    assert await session.await_output()
    assert session.take_output() == b"4one\x1e4two"
    assert session.take_output() == b"6"


async def test_a_later_poll_replaces_the_one_that_waits() -> None:
    session = in_state(State.POLLING)
    found: list[bool] = []

    async def poll() -> None:
        found.append(await session.await_output())

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(poll)
        await anyio.sleep(0.01)
        tasks.start_soon(poll)
        await anyio.sleep(0.01)
        assert found == [False]
        session.send(b"4one")
    assert found == [False, True]


async def test_the_last_poll_gets_what_is_left_and_the_end() -> None:
    session = in_state(State.POLLING)
    session.send(b"4last words")
    session.close(1000, "")
    session.send(b"4too late")
    assert session.take_output() == b"4last words\x1e1"
    assert session.state is State.CLOSED


async def test_who_is_to_come_back_is_not_told_that_it_is_for_good() -> None:
    session = in_state(State.POLLING)
    session.send(b"4last words")
    session.close(1012, "restart")
    assert session.take_output() == b"4last words"
    assert session.state is State.CLOSED
    session = in_state(State.POLLING)
    session.close(1012, "restart")
    assert session.take_output() is None


async def test_what_is_left_is_taken_by_several_polls() -> None:
    session = in_state(State.POLLING)
    for number in range(20):
        session.send(b"4%d" % number)
    session.close(1000, "")
    first, second = session.take_output(), session.take_output()
    assert first is not None
    assert second is not None
    assert first.count(b"\x1e") == 14
    assert second.endswith(b"419\x1e1")
    assert session.state is State.CLOSED


async def test_a_client_that_does_not_poll_is_let_go() -> None:
    session = in_state(State.POLLING)
    for _ in range(200):
        session.send(b"4" + b"x" * 100)
    assert session.state is State.LEAVING
    assert session.take_output() is None


async def test_a_client_that_is_not_heard_is_lost() -> None:
    session = in_state(State.STREAMING)
    states = []
    for seconds in (25, 50, 75, 100):
        session.clock.now = seconds
        session.ping()
        states.append(session.state)
    assert states == [State.STREAMING] * 3 + [State.CLOSED]
    assert session.stream.sent == [b"2"] * 3
    assert session.stream.closed


async def test_a_client_that_is_heard_is_not_lost() -> None:
    session = in_state(State.POLLING)
    for seconds in range(0, 1_000, 25):
        session.clock.now = seconds
        session.ping()
        session.heard()
        session.take_output()
    assert session.state is State.POLLING


async def test_a_client_is_not_lost_while_we_do_not_read_what_it_sends() -> None:
    session = in_state(State.STREAMING)
    session.is_working = True
    session.clock.now = 1_000
    session.ping()
    assert session.state is State.STREAMING
