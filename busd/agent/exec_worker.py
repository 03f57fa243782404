"""Any command as an agent: a message's text goes in, what it prints is the answer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import anyio
from anyio.abc import TaskGroup

from busd.agent.program import MAX_OUTPUT_BYTES, Program, open_program
from busd.agent.turn import Turn, TurnFailed

if TYPE_CHECKING:
    from busd.agent.agent import Agent

NO_OUTPUT = "(no output)"
# When a program has ended, what it left running (in a session of its own) may hold its stdout.
_LAST_WORDS_SECONDS = 0.2


class ExecWorker:
    """Runs the command once for each message."""

    def __init__(
        self, agent: Agent, command: Sequence[str], *, as_argument: bool, is_streaming: bool
    ) -> None:
        self._agent = agent
        self._command = list(command)
        self._as_argument = as_argument
        self._is_streaming = is_streaming

    async def answer(self, turn: Turn) -> str:
        """Run the command and return what it printed; raise TurnFailed if it failed."""
        command = [*self._command, turn.text] if self._as_argument else self._command
        async with open_program(
            command,
            self._agent.workspace,
            environment_of(turn),
            has_stdin=not self._as_argument,
        ) as program:
            run = _Run(program, turn, self._is_streaming)
            await run.finish()
            if program.exit_code != 0:
                raise program.failure()
            return run.answer()


def environment_of(turn: Turn) -> dict[str, str]:
    """Return what a program may want to know of a turn."""
    return {
        **environment_of_agent(turn.agent),
        "BUSD_MESSAGE_ID": turn.message_id,
        "BUSD_SENDER": turn.sender,
    }


def environment_of_agent(agent: Agent) -> dict[str, str]:
    """Return what a program may want to know of its agent, and for `busd send` to find the bus."""
    return {
        "BUSD_ADDRESS": str(agent.client.address),
        "BUSD_CLIENT_ID": agent.client_id,
        "BUSD_WORKSPACE": str(agent.workspace),
    }


class _Run:
    """One run of the command, from its start to its last word."""

    def __init__(self, program: Program, turn: Turn, is_streaming: bool) -> None:
        self._program = program
        self._turn = turn
        self._is_streaming = is_streaming
        self._output = bytearray()
        self._shown_bytes = 0
        self._is_showing = False

    async def finish(self) -> None:
        """Feed the program and read it until it has ended."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._feed)
            tasks.start_soon(self._leave_no_stragglers, tasks)
            async with anyio.create_task_group() as readers:
                readers.start_soon(self._program.complaints.read)
                readers.start_soon(self._read, tasks)
            await self._program.wait()
            tasks.cancel_scope.cancel()
        if self._is_too_much:
            raise TurnFailed(f"the program printed more than {MAX_OUTPUT_BYTES} bytes", code="full")

    async def _feed(self) -> None:
        text = self._turn.text
        content = text if text.endswith("\n") else f"{text}\n"
        await self._program.write(content.encode(errors="replace"))
        self._program.end_input()

    async def _read(self, tasks: TaskGroup) -> None:
        while chunk := await self._program.stdout.read():
            self._output += chunk
            if self._is_too_much:
                tasks.cancel_scope.cancel()
                return
            if self._is_streaming:
                self._is_showing = True
                await self._show_lines()
                self._is_showing = False

    async def _leave_no_stragglers(self, tasks: TaskGroup) -> None:
        """Read on when the program has ended, but not for what it left running in its place."""
        await self._program.wait()
        self._program.kill()
        read_bytes = -1
        while read_bytes != len(self._output) or self._is_showing:
            read_bytes = len(self._output)
            await anyio.sleep(_LAST_WORDS_SECONDS)
        tasks.cancel_scope.cancel()

    @property
    def _is_too_much(self) -> bool:
        return len(self._output) > MAX_OUTPUT_BYTES

    async def _show_lines(self) -> None:
        """Send the lines that are complete."""
        end = self._output.rfind(b"\n") + 1
        if end > self._shown_bytes:
            lines = bytes(self._output[self._shown_bytes : end])
            self._shown_bytes = end
            await self._turn.delta(lines.decode(errors="replace"))

    def answer(self) -> str:
        return self._output.decode(errors="replace").strip("\n") or NO_OUTPUT
