"""`Agent`: what a program needs to answer messages.

    agent = Agent()

    @agent.answers
    async def answer(turn: Turn) -> str:
        return f"you said {turn.text}"

    agent.run()

A message is taken and acked at once (`_take_words`), waits for its turn, is answered by the
handler (`_run_turn`), and the answer goes to `talkto` (`send_reply`).
"""

from __future__ import annotations

import inspect
import logging
import os
import sys
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import anyio
import msgspec
from anyio.abc import TaskStatus
from msgspec import Raw

from busd.agent.folder import make_workspace
from busd.agent.identity import SYSTEM, WorkerIdentity, default_client_id, read_identity
from busd.agent.ledger import FILE_NAME, Asked, Ledger
from busd.agent.prompt import Prompts
from busd.agent.reception import add_handlers
from busd.agent.reply import Replies
from busd.agent.session import AgentSettings
from busd.agent.turn import Turn, TurnFailed
from busd.agent.turns import TurnQueue, WhenBusy
from busd.bus.address import check_name
from busd.client.cause import handling
from busd.client.client import Client
from busd.client.run import Loop, run, run_until_signal
from busd.errors import BusdError, ConfigError, MalformedAddress, Refuse
from busd.vocabulary.bub import AgentEvent, Configure, TgReply
from busd.vocabulary.payload import write_message

log = logging.getLogger("busd.agent")

H = TypeVar("H", bound=Callable[..., Any])
_MAX_STARTS = 2  # of one message's turn; a message that kills its agent twice is let go


class Agent:
    """A peer of the bus that answers messages, one turn after the other.

    Who it is, whom it talks to and where it works is said by the arguments of the program
    (`--client-id`, `--talkto`, `--workspace`, `--reply-type`; others are left alone), else by the
    environment (`BUSD_CLIENT_ID` …).
    """

    def __init__(
        self,
        client_id: str = "",
        *,
        talkto: str = "",  # nobody: then it answers whoever wrote
        workspace: Path | str = "",
        reply_type: str = "",
        when_busy: WhenBusy = "queue",
        turn_seconds: float | None = None,
        address: str | None = None,
        about: str = "agent",
        arguments: Sequence[str] | None = None,
    ) -> None:
        said = _read_own_identity() if arguments is None else read_identity(arguments)
        where = str(workspace) or said.workspace
        self.client_id = client_id or said.client_id or default_client_id()
        self.workspace = Path(where).absolute() if where else Path.cwd()
        self.reply_type = reply_type or said.reply_type
        self.turn_seconds = turn_seconds
        # A folder that nobody named is not written to.
        self.data = make_workspace(self.workspace) / "data" if where else None
        self.session = AgentSettings(talkto or said.talkto, self.workspace if where else None)
        self.ledger = Ledger(self.data / FILE_NAME if self.data else None)
        self.turns = TurnQueue(when_busy)
        self.prompts = Prompts()
        self.handler: Callable[[Turn], Any] | None = None
        self.listener: Callable[[TgReply, str], Any] | None = None
        info = {"name": about, "pid": os.getpid()}
        self.client = Client(self.client_id, address=address, info=info)
        self._replies = Replies(self.client, self._settle)
        add_handlers(self)

    @property
    def talkto(self) -> str:
        """Whom it talks to: everything it says goes there."""
        return self.session.talkto

    @property
    def settings(self) -> dict[str, Any]:
        """The named settings that `configure` made."""
        return self.session.settings

    # What the program says

    def answers(self, function: H) -> H:
        """Register the function that answers messages; one that is not async runs in a thread."""
        self.handler = function
        return function

    def hears(self, function: H) -> H:
        """Register the function that receives other agents' replies; its result is ignored."""
        self.listener = function
        return function

    def run(self, loop: Loop = "asyncio") -> None:
        """Serve until the program is told to end (SIGTERM or Ctrl-C)."""
        run(self.serve, loop=loop)

    # Life

    async def serve(self, *, task_status: TaskStatus[None] = anyio.TASK_STATUS_IGNORED) -> None:
        """Connect and answer messages until cancelled; raise BusdError if the bus refuses us."""
        if self.handler is None:
            raise RuntimeError("an agent needs a handler: put @agent.answers above a function")
        self._work_came = anyio.Event()
        self._take_up()
        async with self.client:
            problem: BusdError | None = None
            async with anyio.create_task_group() as self.tasks:
                self._replies.tasks = self.tasks
                self.tasks.start_soon(self._work)
                task_status.started()
                try:
                    await self.client.run_forever()
                except BusdError as trouble:
                    problem = trouble  # raised as it is, not in the group we would make of it
                self.tasks.cancel_scope.cancel()
            if problem is not None:
                raise problem

    def _take_up(self) -> None:
        """Begin where an earlier run was ended: its messages were acked, so nobody else will."""
        for asked in self.ledger.unanswered():
            try:
                self.turns.waiting.append(Turn(self, asked))
            except Refuse:
                self.ledger.finish([asked.key])  # somebody has been at the file

    def take(self, turn: Turn, asked: Asked) -> str:
        """Accept a message for a turn; it is written to the ledger before it is acknowledged."""
        outcome = self.turns.take(turn)
        self.ledger.take(asked)
        self._work_came.set()
        return outcome

    async def _work(self) -> None:
        try:
            while True:
                while turn := self.turns.start_next():
                    await self._run_turn(turn)
                self._work_came = anyio.Event()
                await self._work_came.wait()
        finally:
            self._replies.hurry()

    async def _run_turn(self, turn: Turn) -> None:
        try:
            with turn.scope, handling(turn.message_id):
                if not (turn.is_over or turn.failure):  # ended while it waited
                    await self._answer(turn)
            if turn.failure is not None and not turn.is_ending:
                await self._fail(turn, turn.failure.code, turn.failure.message)
            turn.is_over = True
        finally:
            if turn.is_over or turn.has_answered:
                turn.is_over = True
                self._settle(turn)
            else:  # the agent ends; its next run takes it up again
                self.ledger.release(turn.keys)
            turn.ended.set()

    def _settle(self, turn: Turn) -> None:
        """Note that a turn is done when nothing of it is on the way any more."""
        if turn.is_over and not turn.deliveries:
            self.ledger.finish(turn.keys)

    async def _answer(self, turn: Turn) -> None:
        """Call the handler and send its answer; report any failure to the user."""
        try:
            starts = [self.ledger.start(each) for each in turn.keys]
            if max(starts) > _MAX_STARTS:
                raise TurnFailed("the agent died over this message, twice", code="worker_died")
            answer = await self._call_handler(turn)
            if answer is not None:
                turn.has_answered = True
                await turn.reply(str(answer))
        except TurnFailed as failure:
            await self._fail(turn, failure.code, failure.message)
        except BusdError as problem:
            log.error("%r: the answer could not be sent: %s", turn, problem)
            await self._fail(turn, "reply_failed", "the answer could not be sent")
        except Exception as problem:
            # The details are ours; whoever wrote learns only that it failed.
            log.exception("%r: the handler failed", turn)
            await self._fail(turn, "worker_failed", f"the agent failed ({type(problem).__name__})")

    async def _call_handler(self, turn: Turn) -> object:
        assert self.handler is not None
        with anyio.move_on_after(self.turn_seconds):
            if inspect.iscoroutinefunction(self.handler):
                answer: object = await self.handler(turn)
                return answer
            from anyio import to_thread

            return await to_thread.run_sync(self.handler, turn, abandon_on_cancel=True)
        raise TurnFailed(f"no answer within {self.turn_seconds:g} seconds", code="timeout")

    async def _fail(self, turn: Turn, code: str, message: str) -> None:
        log.warning("%r failed: %s: %s", turn, code, message)
        try:
            await turn.fail(code, message)
        except BusdError as problem:
            log.error("%r: nor could that be said: %s", turn, problem)

    # Speaking

    async def send_reply(self, turn: Turn, reply: TgReply, message_id: str) -> None:
        """Send a reply so that it arrives, if its addressee comes back soon."""
        payload = write_message(reply, sender=self.client_id, message_id=message_id)
        await self._replies.send(turn, turn.talkto, payload, message_id)

    async def tell(self, to: str, event: str, data: Raw) -> None:
        """Send an `agent_event`; one that nobody can get is of no use later."""
        try:
            await self.client.post(
                to, write_message(AgentEvent(event, data), sender=self.client_id)
            )
        except BusdError as problem:
            log.info("%s for %s is lost: %s", event, to, problem)

    async def report_configured(self, wanted: Configure) -> None:
        """Report a change of our settings to their owner; raises Refuse if it cannot keep them.

        A bus without that plugin, or to which we are no agent of its own, leaves them to us.
        """
        event = AgentEvent("configured", Raw(msgspec.json.encode(wanted)))
        try:
            receipt = await self.client.send(SYSTEM, write_message(event, sender=self.client_id))
        except BusdError as problem:
            log.warning("%s did not hear what was configured: %s", SYSTEM, problem)
            return
        for ack in receipt.acks:
            if not ack.success:
                raise Refuse(f"configure: {ack.message}")


async def serve_until_told(agent: Agent, greet: Callable[[], None] | None = None) -> None:
    """Serve; end in peace when a signal says so. `greet` is called when it is on the bus."""
    await run_until_signal(partial(agent.serve, task_status=_Greeting(greet)))


class _Greeting(TaskStatus[None]):
    """Passes on that an agent is on the bus."""

    def __init__(self, greet: Callable[[], None] | None) -> None:
        self._greet = greet

    def started(self, value: None = None) -> None:
        if self._greet is not None:
            self._greet()


def _read_own_identity() -> WorkerIdentity:
    """Read the identity from our own command line; a mistake there ends the program."""
    try:
        said = read_identity(sys.argv[1:])
        if said.client_id:
            check_name(said.client_id)
    except (ConfigError, MalformedAddress) as problem:
        print(f"{Path(sys.argv[0]).name}: {problem}", file=sys.stderr)
        sys.exit(2)
    return said
