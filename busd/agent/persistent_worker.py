"""One program for a whole conversation: a line in, its answer out, and again.

`lines`: a message is one line (its line breaks become spaces). The answer is the next line; or all
lines up to the line `until`; or all that is printed before the program shows its `prompt` again.
`json`: an object a line. In: {"text", "message_id", "sender"}. Out: {"delta"} as often as it
likes, then {"text"} or {"error"}.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Literal

import anyio
import msgspec
from anyio.abc import TaskStatus

from busd.agent.exec_worker import NO_OUTPUT, environment_of_agent
from busd.agent.output import Output, OutputEnded
from busd.agent.program import Program, open_program
from busd.agent.turn import Turn, TurnFailed

if TYPE_CHECKING:
    from busd.agent.agent import Agent

log = logging.getLogger("busd.agent")

Manner = Literal["lines", "json"]
_LAST_WORDS_SECONDS = 1.0
_END_SECONDS = 5.0


class Said(msgspec.Struct):
    """What a program that speaks JSON says in one line."""

    text: str | None = None
    delta: str | None = None
    error: str | None = None


class ProgramConversation:
    """A running program, and how to end it."""

    def __init__(self, program: Program, ended: anyio.Event) -> None:
        self.program = program
        self.ended = ended
        self.output = Output(program.stdout)
        self.scope = anyio.CancelScope()
        self.is_greeted = False


class PersistentWorker:
    """Runs the command once and passes it one message after the other."""

    def __init__(
        self,
        agent: Agent,
        command: Sequence[str],
        manner: Manner,
        *,
        is_streaming: bool = False,
        until: str = "",
        prompt: str = "",
    ) -> None:
        self._agent = agent
        self._command = list(command)
        self._is_streaming = is_streaming
        self._until = until.encode()
        self._prompt = prompt.encode()
        self._talk: Callable[[Turn, ProgramConversation], Awaitable[str]] = (
            self._talk_json if manner == "json" else self._talk_lines
        )
        self._conversation: ProgramConversation | None = None

    async def answer(self, turn: Turn) -> str:
        """Return the program's answer; a program that failed or was interrupted is restarted."""
        conversation = await self._running()
        try:
            return await self._talk(turn, conversation)
        except OutputEnded:
            return await self._last_words(conversation)
        except BaseException:
            # Nobody knows how far it got: its next words would be taken for another answer.
            await self._end(conversation)
            raise

    async def _running(self) -> ProgramConversation:
        """Return the conversation; it begins with the first message, and again after an end."""
        found = self._conversation
        if found is not None and found.program.exit_code is None and not found.ended.is_set():
            return found
        if found is not None:
            await self._end(found)
        self._conversation = None
        started: ProgramConversation = await self._agent.tasks.start(self._run)
        self._conversation = started
        return started

    async def _run(self, *, task_status: TaskStatus[ProgramConversation]) -> None:
        """Run the program until it ends, or is not wanted any more."""
        about = environment_of_agent(self._agent)
        ended = anyio.Event()
        try:
            async with open_program(
                self._command, self._agent.workspace, about, has_stdin=True
            ) as program:
                conversation = ProgramConversation(program, ended)
                task_status.started(conversation)
                with conversation.scope:
                    await program.complaints.read()
                    await program.wait()
                    await conversation.output.ended.wait()
        finally:
            ended.set()

    async def _end(self, conversation: ProgramConversation) -> None:
        conversation.scope.cancel()
        with anyio.move_on_after(_END_SECONDS, shield=True):
            await conversation.ended.wait()

    async def _last_words(self, conversation: ProgramConversation) -> str:
        """Return how it ended; a program that was told to leave and did is not at fault."""
        with anyio.move_on_after(_LAST_WORDS_SECONDS):
            await conversation.program.wait()
        code, failure = conversation.program.exit_code, conversation.program.failure()
        rest = conversation.output.take_rest()
        await self._end(conversation)
        if code == 0:
            return rest or "(the program has ended)"
        raise failure

    # Lines

    async def _talk_lines(self, turn: Turn, conversation: ProgramConversation) -> str:
        output = conversation.output
        if self._prompt and not conversation.is_greeted:
            await output.read_until_prompt(self._prompt)
            conversation.is_greeted = True
        await self._drop_stale(output)
        line = " ".join(turn.text.splitlines()) + "\n"
        show = turn.delta if self._is_streaming else None
        return await self._with_input(conversation, line, lambda: self._read_answer(output, show))

    async def _drop_stale(self, output: Output) -> None:
        if stale := await output.drop_stale():
            log.info("%s printed %d bytes that nobody had asked for", self._command[0], stale)

    async def _read_answer(
        self, output: Output, show: Callable[[str], Awaitable[None]] | None
    ) -> str:
        if self._prompt:
            answer = await output.read_until_prompt(self._prompt, show)
        elif self._until:
            answer = await output.read_until_line(self._until, show)
        else:
            answer = (await output.read_line()).decode(errors="replace")
        return answer.strip("\n") or NO_OUTPUT

    async def _with_input(
        self, conversation: ProgramConversation, line: str, read: Callable[[], Awaitable[str]]
    ) -> str:
        """Write while we read: a program that answers before it has read all must not hang."""
        answer, problem = "", None
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(conversation.program.write, line.encode(errors="replace"))
            try:
                answer = await read()
            except (TurnFailed, OutputEnded) as failure:
                problem = failure
                tasks.cancel_scope.cancel()
        if problem is not None:
            raise problem
        return answer

    # JSON

    async def _talk_json(self, turn: Turn, conversation: ProgramConversation) -> str:
        await self._drop_stale(conversation.output)
        asked = {"text": turn.text, "message_id": turn.message_id, "sender": turn.sender}
        line = msgspec.json.encode(asked).decode() + "\n"
        return await self._with_input(
            conversation, line, lambda: self._read_objects(turn, conversation)
        )

    async def _read_objects(self, turn: Turn, conversation: ProgramConversation) -> str:
        while True:
            line = await conversation.output.read_line()
            if not line.strip():
                continue
            try:
                said = msgspec.json.decode(line, type=Said)
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
                raise TurnFailed(
                    "the program printed a line that is no JSON object", code="bad_output"
                ) from None
            if said.error is not None:
                raise TurnFailed(said.error[:1_000], code="worker_failed")
            if said.delta is not None:
                await turn.delta(said.delta)
            if said.text is not None:
                return said.text
