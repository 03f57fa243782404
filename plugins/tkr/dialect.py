"""The dialect: which event of a client does what, and what the client is answered.

frame → `receive` → `messages.read_message` → a request → its outcome → an ack or an error
event of the gateway → `show` → `showing.Showing`
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar

from busd import Plugin
from busd.gateway import (
    Author,
    Dialect,
    Done,
    Effects,
    Emit,
    Event,
    Frame,
    Hello,
    Refused,
    Request,
    SocketFrame,
)
from busd_plugins.tkr import answers, rooms, tasks, words
from busd_plugins.tkr.asking import Asking, Outcome
from busd_plugins.tkr.connection import AGENTS, Connection
from busd_plugins.tkr.messages import Incoming, read_message
from busd_plugins.tkr.rooms import Room
from busd_plugins.tkr.schema import MESSAGES
from busd_plugins.tkr.showing import Showing
from busd_plugins.tkr.values import BadMessage, said

plugin = Plugin("tkr")


@plugin.gateway("/socket.io")
class Tkr(Dialect):
    """One client in one namespace."""

    prefix = "tkr"
    namespaces: ClassVar[tuple[str, ...]] = ("/", "/agents", "/tasks")
    max_frame_bytes = 5 * 1024 * 1024
    messages = MESSAGES

    def __init__(self, hello: Hello) -> None:
        super().__init__(hello)
        self.connection = Connection(hello)
        self.showing = Showing(self.connection)
        self.asking = Asking(self.connection, self.showing)

    def open(self) -> Effects:
        yield self.connection.status()
        if session := self.connection.given_session:
            outcome = yield from self.asking.enter(session)
            if isinstance(outcome, Refused):
                yield answers.refusal(self.connection, outcome)

    def receive(self, frame: Frame) -> Effects:
        if isinstance(frame, SocketFrame):
            yield from self._HANDLERS.get(frame.event, Tkr._on_unknown)(self, frame)

    def show(self, event: Event) -> Effects:
        if isinstance(event, Done | Refused):
            yield from self.asking.settle(event)
        else:
            yield from self.showing.show(event)

    def refuse(self, rule: str, reason: str) -> Effects:
        yield answers.error_event(
            self.connection, reason, codes=answers.codes_of(rule), details={"rule": rule}
        )

    # Messages

    def _on_message(self, frame: SocketFrame) -> Effects:
        try:
            message = read_message(frame.data, self.connection)
        except BadMessage as problem:
            given_id = answers.given_id(frame.data, "unknown")
            yield from answers.bad_message(self.connection, frame, given_id, problem)
            return
        if message.type in ("ping", "pong", "ack"):
            yield from self._on_sign_of_life(frame, message)
        else:
            yield from self._perform(frame, message)

    def _on_sign_of_life(self, frame: SocketFrame, message: Incoming) -> Effects:
        now = self.hello.now()
        if message.type == "ping":
            yield Emit("pong", {"timestamp": now})
        ack: dict[str, Any] = {"status": "pong" if message.type == "ping" else "received"}
        if self.connection.namespace == AGENTS:
            ack = {"status": "received", "message_id": message.id}
        yield from answers.acknowledge(frame, {**ack, "timestamp": now})

    def _perform(self, frame: SocketFrame, message: Incoming) -> Effects:
        """Do in its session what a message asks for, and answer it."""
        author = self.connection.author(message.from_agent, message.from_user)

        def answer(outcome: Outcome) -> Effects:
            given_id = answers.given_id(frame.data, message.id)
            if isinstance(outcome, Refused):
                return answers.refused(self.connection, frame, given_id, outcome)
            stored = outcome.entry.id if outcome and outcome.entry else message.id
            ack = answers.success(self.connection, message, given_id, stored)
            return answers.acknowledge(frame, ack)

        outcome = yield from self.asking.enter(message.session)
        if isinstance(outcome, Refused):
            yield from answer(outcome)
        elif message.type == "text" and message.is_partial:
            yield words.partial(message, author)
            yield from answer(None)
        elif message.type == "task" and message.action in ("subscribe", "unsubscribe"):
            wanted = message.action == "subscribe"
            outcome = yield from self.asking.subscribe(
                message.session, message.subject, wanted=wanted
            )
            if not isinstance(outcome, Refused):
                yield tasks.room_event(self.connection, f"{message.action}d", message.subject)
            yield from answer(outcome)
        else:
            yield from self.asking.ask(self._request_of(message, author), answer)

    def _request_of(self, message: Incoming, author: Author) -> Request:
        if message.type == "context_update":
            return tasks.context_share(message, author)
        if message.type in ("task_update", "task"):
            if message.action == "cancel" and (cancel := self.showing.cancel_of(message)):
                return cancel
            return tasks.task_change(message, author)
        answered = self.showing.prompts.answered_by(message) if author.type == "user" else None
        if answered is not None:
            return words.answer_of(message, author, *answered)
        return words.request_of(self.connection, message, author)

    # Signs of life

    def _on_ping(self, frame: SocketFrame) -> Effects:
        now = self.hello.now()
        yield from answers.acknowledge(frame, {"status": "pong", "timestamp": now})
        yield Emit("pong", {"timestamp": now})

    def _on_sign(self, frame: SocketFrame) -> Effects:
        yield from answers.acknowledge(frame, None)

    def _on_unknown(self, frame: SocketFrame) -> Effects:
        problem = BadMessage("event", f"Unknown event: {said(frame.event)}")
        given_id = answers.given_id(frame.data, "unknown")
        yield from answers.bad_message(self.connection, frame, given_id, problem)

    # Rooms

    def _on_join(self, frame: SocketFrame) -> Effects:
        try:
            room = Room(frame.data)
        except BadMessage as problem:
            yield rooms.bad_room(problem)
        else:
            if room.kind == "session":
                outcome = yield from self.asking.enter(room.id, room)
            elif room.kind == "agent":
                outcome = rooms.join(self.connection.agents, room.name)
            else:
                session = self.connection.session
                outcome = yield from self.asking.subscribe(session, room.id, wanted=True)
            yield rooms.outcome_of(self.connection, "joined", room, outcome)
        yield from answers.acknowledge(frame, None)

    def _on_leave(self, frame: SocketFrame) -> Effects:
        try:
            room = Room(frame.data)
        except BadMessage as problem:
            yield rooms.bad_room(problem)
        else:
            outcome: Outcome = None
            if room.kind == "session":
                outcome = yield from self.asking.leave(room.id)
            elif room.kind == "agent":
                self.connection.agents.discard(room.name)
            else:
                self.connection.tasks.discard(room.id)
            yield rooms.outcome_of(self.connection, "left", room, outcome)
        yield from answers.acknowledge(frame, None)

    def _on_subscribe(self, frame: SocketFrame) -> Effects:
        yield from self._on_subscription(frame, "subscribed")

    def _on_unsubscribe(self, frame: SocketFrame) -> Effects:
        yield from self._on_subscription(frame, "unsubscribed")

    def _on_subscription(self, frame: SocketFrame, status: str) -> Effects:
        try:
            session, task_id = rooms.subscription(frame.data, self.connection.session)
        except BadMessage as problem:
            yield from answers.acknowledge(frame, {"status": "error", "message": str(problem)})
            return
        wanted = status == "subscribed"
        outcome = yield from self.asking.subscribe(session, task_id, wanted=wanted)
        ack = {"status": status, "task_id": task_id}
        if isinstance(outcome, Refused):
            ack = {"status": "error", "message": outcome.reason}
        yield from answers.acknowledge(frame, ack)

    _HANDLERS: ClassVar[dict[str, Callable[[Tkr, SocketFrame], Effects]]] = {
        "message": _on_message,
        "ping": _on_ping,
        "pong": _on_sign,  # answers a ping of ours
        "error": _on_sign,  # reports a fault of the client's own
        "join": _on_join,
        "leave": _on_leave,
        "subscribe": _on_subscribe,
        "unsubscribe": _on_unsubscribe,
    }
