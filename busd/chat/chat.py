"""A chat with an agent: each message that is typed begins a turn, which lasts until its answer."""

from __future__ import annotations

import logging
import signal
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import anyio
import click

from busd.chat.console import open_console
from busd.chat.open_turns import OpenTurn, OpenTurns
from busd.chat.receiving import Receiver
from busd.chat.screen import Screen
from busd.chat.sending import Sender
from busd.errors import BusdError, CallRefused, ConnectionLost, NoAnswer
from busd.vocabulary.addresses import event_address

if TYPE_CHECKING:
    from busd.client.client import Client

Command = Callable[["TerminalChat"], Awaitable[None]]
Work = Callable[[], Awaitable[None]]
# What ends a chat; `main` has the message and the exit code for each.
ENDINGS = (BusdError, click.ClickException, click.exceptions.Exit, UnicodeError, OSError)
_STOP_SECONDS = 2.0  # that a script waits for the agent to stop


class TerminalChat:
    """One conversation, from the first line that is typed to the last."""

    def __init__(self, bus: Client, to: str, *, as_json: bool, answer_seconds: float) -> None:
        self.bus = bus
        self.is_json = as_json
        self.console = open_console(self._status, self._interrupt)
        self.screen = Screen(self.console)
        self.turns = OpenTurns()
        self.receiver = Receiver(self)
        self.sender = Sender(self, to)
        self.gets_events = False
        self._is_connected = True
        self._interrupted: set[str] = set()  # turns that were open at the last Ctrl-C
        self._answer_seconds = answer_seconds
        self._problem: Exception | None = None

    async def run(self, commands: dict[str, Command]) -> None:
        """Run until standard input ends or somebody leaves; raise what ended it early."""
        # The chat reports lost connections itself; the client's log would disturb the answers.
        logging.getLogger("busd.client").setLevel(logging.ERROR)
        await self._subscribe()
        with self.console.open():
            async with anyio.create_task_group() as tasks:
                self._tasks = tasks
                self.bus.on_line(self._report_connection)
                tasks.start_soon(self._guarded, self.receiver.serve)
                tasks.start_soon(self._obey_signals)
                await self._guarded(lambda: self._read_all(commands))
                tasks.cancel_scope.cancel()
            self.screen.end_line()
        if self._problem is not None:
            raise self._problem

    async def _subscribe(self) -> None:
        """Subscribe to the events of agents at work; without permission the chat goes on."""
        try:
            await self.bus.subscribe(event_address(self.bus.client_id))
            self.gets_events = True
        except CallRefused as refusal:
            self.screen.note(f"the agent's progress is not shown: {refusal}")

    def start_soon(self, work: Work) -> None:
        self._tasks.start_soon(self._guarded, work)

    async def _guarded(self, work: Work) -> None:
        """End the chat with what goes wrong; a task group would wrap it."""
        try:
            await work()
        except ENDINGS as problem:
            self.leave(problem)
        except BaseException:
            self.console.close()  # a prompt is not cancelled
            raise

    def leave(self, problem: Exception | None = None) -> None:
        """End the chat."""
        self._problem = self._problem or problem
        self.console.close()
        self._tasks.cancel_scope.cancel()

    def _status(self) -> str:
        """Return the status line."""
        first = self.turns.first()
        if not self._is_connected:
            return "connection lost; reconnecting…"
        if self.turns.prompt is not None:
            return "the agent waits for your answer"
        if first is None:
            return f"{self.bus.client_id} → {self.sender.to}"
        if any(turn.streamed for turn in self.turns.open.values()):
            return "streaming; Ctrl-C stops it"
        return f"waiting {anyio.current_time() - first.started_at:.0f} s; Ctrl-C stops it"

    # Input

    async def _read_all(self, commands: dict[str, Command]) -> None:
        while (line := await self._next_line()) is not None:
            text = line.strip()
            if text.startswith("/") and not text.startswith("//") and "\n" not in text:
                await self._obey(text, commands)
            elif self.turns.prompt is not None:
                self.sender.answer(self.turns.prompt, text)
            elif text:
                self.sender.begin_turn(text[1:] if text.startswith("//") else line.rstrip("\n"))
        if self.turns.prompt is not None and not self.console.is_interactive:
            raise BusdError("standard input ended before the question was answered")

    async def _next_line(self) -> str | None:
        if not self.console.is_interactive:
            await self._wait_for_answers()
        return await self.console.read()

    async def _wait_for_answers(self) -> None:
        with anyio.move_on_after(self._answer_seconds):
            await self.turns.wait()
            return
        with anyio.move_on_after(_STOP_SECONDS):
            await self._cancel_all()
        raise NoAnswer(f"no answer from {self.sender.to} in {self._answer_seconds:g} seconds")

    async def _cancel_all(self) -> None:
        for turn in list(self.turns.open.values()):
            try:
                await self.sender.cancel(turn)
            except BusdError:
                continue  # the chat ends in any case

    async def _obey(self, text: str, commands: dict[str, Command]) -> None:
        name = text.split()[0]
        if name not in commands:
            self.screen.note(f"Unknown command {name}. Type /help for a list.")
        elif self.console.is_interactive:
            self.start_soon(lambda: self._run_command(commands[name]))  # the prompt stays open
        else:
            await self._run_command(commands[name])

    async def _run_command(self, command: Command) -> None:
        try:
            await command(self)
        except BusdError as problem:
            self.screen.complain(str(problem))

    async def stop(self) -> None:
        """Ask the agent to stop the latest turn."""
        turn = self.turns.latest()
        if turn is None:
            self.screen.note("no answer is in progress")
            return
        why_not = await self.sender.cancel(turn)
        self.screen.note(f"no longer waiting: {why_not}" if why_not else "stopped")
        self.end_turn(turn)

    # Interrupts

    async def _obey_signals(self) -> None:
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            async for number in signals:
                if number == signal.SIGINT and self._stop_once():
                    if self.console.is_interactive:
                        continue
                    with anyio.move_on_after(_STOP_SECONDS):
                        await self.turns.wait()
                self.leave(click.exceptions.Exit(128 + number))

    def _interrupt(self) -> None:
        """Handle Ctrl-C on an empty line, which is a key and not a signal at the prompt."""
        if not self._stop_once():
            self.leave(click.exceptions.Exit(128 + signal.SIGINT))

    def _stop_once(self) -> bool:
        """Stop the latest turn; return False if there is none, or it was tried already."""
        running = set(self.turns.open)
        if not running or running & self._interrupted:
            return False
        self._interrupted = running
        self.start_soon(lambda: self._run_command(TerminalChat.stop))
        return True

    # How a turn ends

    def end_turn(self, turn: OpenTurn, text: str | None = None) -> None:
        """Show the part of the answer that was not streamed, and end the turn."""
        if text is not None and not self.is_json:
            rest = turn.rest_of(text)
            if rest is None:
                self.screen.show(text)
            else:
                self.screen.stream(rest)
        self.screen.end_line()
        self.turns.end(turn)

    def fail(self, turn: OpenTurn | None, problem: BusdError) -> None:
        """Report a failure: a terminal shows it, a script ends with it."""
        if not self.console.is_interactive:
            self.leave(problem)  # first: the end of the turn would make it read the next line
        if turn is not None:
            self.end_turn(turn)
        if turn is not None and isinstance(problem, (NoAnswer, ConnectionLost)):
            self.turns.expect_late(turn)
        if self.console.is_interactive:
            self.screen.complain(str(problem))

    def _report_connection(self, is_open: bool) -> None:
        """Report that the connection was lost or restored; the fate of open turns is unknown."""
        self._is_connected = is_open
        try:
            if is_open:
                self.screen.note("connected again")
                return
            self.screen.note("connection lost; reconnecting…")
            for turn in list(self.turns.open.values()):
                if turn.is_acked:  # otherwise the call that waits for its ack reports it
                    self.fail(turn, NoAnswer("connection lost before the answer came"))
        except ENDINGS as problem:
            self.leave(problem)
