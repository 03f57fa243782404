"""A chat with an agent: what a person says is a turn, which lasts until it is answered."""

from __future__ import annotations

import logging
import signal
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import anyio
import click

from busd.chat.hearing import Hearing
from busd.chat.input import ChatInput
from busd.chat.saying import Saying
from busd.chat.screen import Screen
from busd.chat.turn import Turn
from busd.chat.turns import Turns
from busd.errors import BusdError, CallRefused, ConnectionLost, NoAnswer
from busd.vocabulary.addresses import event_address

if TYPE_CHECKING:
    from busd.client.client import Client

Command = Callable[["Chat"], Awaitable[None]]
Work = Callable[[], Awaitable[None]]
# What ends a chat; `main` has the words and the exit code for each.
ENDINGS = (BusdError, click.ClickException, click.exceptions.Exit, UnicodeError, OSError)
_STOP_SECONDS = 2.0  # that a script waits for the agent to stop
_TICK_SECONDS = 0.5


class Chat:
    """One conversation, from the first line that is typed to the last."""

    def __init__(self, bus: Client, to: str, *, as_json: bool, answer_seconds: float) -> None:
        self.bus = bus
        self.is_json = as_json
        self.typed = ChatInput()
        self.screen = Screen(self.typed)
        self._reading = anyio.CancelScope()
        self.turns = Turns(on_idle=lambda: self._reading.cancel())
        self.hearing = Hearing(self)
        self.saying = Saying(self, to)
        self.hears_events = False
        self._answer_seconds = answer_seconds
        self._problem: Exception | None = None

    async def run(self, commands: dict[str, Command]) -> None:
        """Talk until standard input ends or somebody leaves; raises what ended it early."""
        # A lost line is told in our own words; the client's log would stand between the answers.
        logging.getLogger("busd.client").setLevel(logging.ERROR)
        await self._subscribe()
        with self.typed.open():
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                self.bus.on_line(self._tell_line)
                tasks.start_soon(self._guarded, self.hearing.listen)
                tasks.start_soon(self._obey_signals)
                tasks.start_soon(self._guarded, self._show_waiting)
                await self._guarded(lambda: self._read_all(commands))
                tasks.cancel_scope.cancel()
            self.screen.end_line()
        if self._problem is not None:
            raise self._problem

    async def _subscribe(self) -> None:
        """Subscribe to what agents tell while they work; a chat goes on without, if it must."""
        try:
            await self.bus.subscribe(event_address(self.bus.client_id))
            self.hears_events = True
        except CallRefused as refusal:
            self.screen.note(f"what the agent does meanwhile is not shown: {refusal}")

    def start_soon(self, work: Work) -> None:
        self._tasks.start_soon(self._guarded, work)

    async def _guarded(self, work: Work) -> None:
        """End the chat with what goes wrong; a task group would wrap it."""
        try:
            await work()
        except ENDINGS as problem:
            self.leave(problem)

    def leave(self, problem: Exception | None = None) -> None:
        """End the chat."""
        self._problem = self._problem or problem
        self._tasks.cancel_scope.cancel()

    # What is typed

    async def _read_all(self, commands: dict[str, Command]) -> None:
        while (line := await self._next_line()) is not None:
            text = line.strip()
            if text.startswith("/") and not text.startswith("//") and "\n" not in text:
                await self._obey(text, commands)
            elif self.turns.prompt is not None:
                self.saying.answer(self.turns.prompt, text)
            elif text:
                self.saying.say(text[1:] if text.startswith("//") else line.rstrip("\n"))
        if self.turns.prompt is not None and not self.typed.is_edited:
            raise BusdError("standard input ended before the question was answered")

    async def _next_line(self) -> str | None:
        """Return the next line: from the prompt, or from below the words that are coming in."""
        if not self.typed.is_edited:
            await self._wait_for_answers()
            return await self.typed.read()
        while self.turns.open:
            with anyio.CancelScope() as self._reading:  # until the last answer is in
                return await self.typed.read()
        return await self.typed.edit()

    async def _wait_for_answers(self) -> None:
        with anyio.move_on_after(self._answer_seconds):
            await self.turns.wait()
            return
        with anyio.move_on_after(_STOP_SECONDS):
            await self._cancel_all()
        raise NoAnswer(f"no answer from {self.saying.to} in {self._answer_seconds:g} seconds")

    async def _cancel_all(self) -> None:
        """Ask the agent to stop whatever nobody waits for any more."""
        for turn in list(self.turns.open.values()):
            try:
                await self.saying.cancel(turn)
            except BusdError:
                continue  # it is given up in any case

    async def _show_waiting(self) -> None:
        """Show on a terminal, while an agent works and nothing comes, that it is waited for."""
        while self.typed.is_edited and not self.is_json:
            await self.turns.wait_for_work()
            began = anyio.current_time()
            while self.turns.is_at_work:
                with anyio.move_on_after(_TICK_SECONDS):
                    await self.turns.wait()
                if self.turns.is_at_work:
                    self.screen.wait(anyio.current_time() - began)

    async def _obey(self, text: str, commands: dict[str, Command]) -> None:
        name = text.split()[0]
        if name not in commands:
            self.screen.note(f"there is no {name}; /help names what there is, // begins a /text")
            return
        try:
            await commands[name](self)
        except BusdError as problem:
            self.screen.complain(str(problem))

    async def stop(self) -> None:
        """Ask the agent to stop the latest turn."""
        turn = self.turns.latest()
        if turn is None:
            self.screen.note("nothing is being answered")
            return
        why_not = await self.saying.cancel(turn)
        self.screen.note(f"no longer waiting: {why_not}" if why_not else "stopped")
        self.end_turn(turn)

    async def _obey_signals(self) -> None:
        """Ctrl-C clears a half-typed line, else stops the turn; with none, or again, it leaves.

        At the prompt it is no signal: see `ChatInput.edit`.
        """
        has_interrupted: set[str] = set()
        numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGCONT)
        with anyio.open_signal_receiver(*numbers) as signals:
            async for number in signals:
                if number == signal.SIGCONT:
                    self.typed.resume()
                    continue
                if number == signal.SIGINT and self.typed.clear_line():
                    self.screen.echo_interrupt()
                    continue
                running = set(self.turns.open)
                if number == signal.SIGINT and running and not running & has_interrupted:
                    has_interrupted = running
                    self.screen.echo_interrupt()
                    self.start_soon(self._stop_or_say_why)
                    if self.typed.is_edited:
                        continue
                    with anyio.move_on_after(_STOP_SECONDS):
                        await self._wait_for_answers()
                self.leave(click.exceptions.Exit(128 + number))

    async def _stop_or_say_why(self) -> None:
        try:
            await self.stop()
        except BusdError as problem:
            self.screen.complain(str(problem))

    # How a turn ends

    def end_turn(self, turn: Turn, text: str | None = None) -> None:
        """Show what was not streamed already, and wait for it no longer."""
        if text is not None and not self.is_json:
            rest = turn.rest_of(text)
            if rest is None:
                self.screen.show(text)
            else:
                self.screen.stream(rest)
        self.screen.end_line()
        self.turns.end(turn)

    def fail(self, turn: Turn | None, problem: BusdError) -> None:
        """A person is told and may go on; a script is not to take it for an answer."""
        if not self.typed.is_edited:
            self.leave(problem)  # first: the end of the turn would have the next line read
        if turn is not None:
            self.end_turn(turn)
        if turn is not None and isinstance(problem, (NoAnswer, ConnectionLost)):
            self.turns.expect_late(turn)
        if self.typed.is_edited:
            self.screen.complain(str(problem))

    def _tell_line(self, is_open: bool) -> None:
        """Report that the connection was lost or restored; the fate of open turns is unknown."""
        try:
            if is_open:
                self.screen.note("the bus is back")
                return
            self.screen.note("the bus went away; waiting for it to come back …")
            for turn in list(self.turns.open.values()):
                if turn.is_acked:  # else the call that waits for its ack learns of it
                    self.fail(turn, NoAnswer("the bus went away before the answer came"))
        except ENDINGS as problem:
            self.leave(problem)
