"""A running plugin: its peer on the bus, its tasks, its hooks and its faults.

A changed plugin is restarted: the old version refuses new messages, finishes those in progress and
stops, then the new version starts with the same peer. Meanwhile the peer keeps its subscriptions,
and messages to it get a failed ack: busy.
"""

from __future__ import annotations

import inspect
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
import structlog
from msgspec import Raw

from busd.bus.bucket import Bucket
from busd.bus.local import LocalPeer
from busd.bus.message import Ack, Message
from busd.bus.peer import RemotePeer
from busd.client.incoming import failed_ack
from busd.errors import AccessRefused, Busy, InvalidParams, PluginError, Refuse, RequestError
from busd.plugin.context import Context, payload_of
from busd.plugin.loader import LoadedPlugin
from busd.plugin.mail import PluginMail
from busd.plugin.plugin import PluginMethod
from busd.plugin.rules import PluginRules
from busd.plugin.tasks import GuardedTasks, is_fault
from busd.rpc.endpoint import Asker
from busd.rpc.envelope import RequestId
from busd.rpc.methods import DEFERRED

if TYPE_CHECKING:
    from busd.plugin.host import PluginHost

_FAULTS_PER_SECOND, _FAULTS_AT_ONCE = 1.0, 20  # logged; all of them are counted
_MAX_FAULT_CHARACTERS = 500
_MAX_HELD_BYTES = 64 * 1024 * 1024  # of the messages in progress in one plugin
_GRACE_SECONDS = 1.0  # for tasks that ignore their cancellation
_MAX_DEPTH = 8  # plain functions that call each other by messages; deeper ones wait for a task
Work = Callable[[], Awaitable[None]]
Begun = Callable[[], Any]  # returns a handler's result, or raises its exception


class RunningPlugin:
    """One plugin from its start to its stop."""

    def __init__(
        self, loaded: LoadedPlugin, host: PluginHost, peer: LocalPeer | None = None
    ) -> None:
        """Create it; `peer` is that of the previous version."""
        plugin = loaded.plugin
        self.loaded = loaded
        self.plugin = plugin
        self.name = plugin.name
        self.host = host
        self.log = structlog.get_logger("busd.plugin").bind(plugin=plugin.name)
        self.peer = peer or LocalPeer(f"plugin:{plugin.name}", host.bus, self.take)
        self._leaves_peer = False  # at its end: passed on to the next version
        self.subscriptions: set[str] = set()  # that it asked for; the peer has an earlier one's
        self.tasks: GuardedTasks
        self.rules = PluginRules(self)
        self.mail = PluginMail(self)
        self.held: set[str] = set()  # addresses that it lets get no mail for now
        self.faults = 0
        self.last_fault = ""
        self.handled = 0
        self.is_running = False
        self._busy = 0  # functions in progress
        self._held_bytes = 0  # of the messages in progress
        self._depth = 0  # nested plain functions in progress
        # Tasks begin in any order on trio: each takes the oldest message when it begins.
        self._inbox: deque[tuple[int, int, Context, Begun]] = deque()
        self._blames = Bucket(_FAULTS_PER_SECOND, _FAULTS_AT_ONCE, host.bus.clock)
        self._is_idle: anyio.Event | None = None  # if somebody waits for that
        self._has_tried = anyio.Event()
        self._must_stop = anyio.Event()
        self._has_stopped = anyio.Event()

    # Its life

    @property
    def has_stopped(self) -> bool:
        return self._has_stopped.is_set()

    @property
    def has_peer(self) -> bool:
        """True while it is the version that answers for its peer."""
        return self.host.running.get(self.name) is self and self.peer in self.host.bus.peers

    async def live(self) -> None:
        """Start, answer until asked to stop, stop."""
        try:
            async with anyio.create_task_group() as tasks:
                self.tasks = GuardedTasks(tasks, self.blame)
                self._take_peer()
                if await self._start():
                    self.is_running = True
                    self.peer.take = self.take
                    self._has_tried.set()
                    await self._must_stop.wait()
                    await self._stop()
                tasks.cancel_scope.cancel()
        finally:
            self.is_running = False
            for address in list(self.held):
                self.mail.let_go(address)
            if not self._leaves_peer:
                self.host.bus.leave(self.peer, "stopped")
            self._has_tried.set()
            self._has_stopped.set()
            self.host.flush_soon()

    def _take_peer(self) -> None:
        info = {"name": self.name, "version": self.plugin.version, "description": self.loaded.about}
        shown = {key: value for key, value in info.items() if key != "description" or value}
        self.peer.info = Raw(msgspec.json.encode(shown))
        if self.peer not in self.host.bus.peers:
            self.host.bus.join(self.peer)  # methods may be called during its start, too

    async def _start(self) -> bool:
        has_started = await self._run_hooks("on_start", self.host.limits.start_seconds)
        if not has_started or not self.has_peer:  # nobody could wait any longer
            return False
        try:
            for pattern in self.plugin.patterns:
                self.host.bus.subscribe(self.peer, pattern)
        except RequestError as fault:
            self.blame(f"cannot subscribe: {fault.message}")
            return False
        for pattern in self.peer.subscriptions - self._wanted:
            self.host.bus.unsubscribe(self.peer, pattern)
        return True

    @property
    def _wanted(self) -> set[str]:
        return {self.peer.name, *self.plugin.patterns, *self.subscriptions}

    async def _stop(self) -> None:
        """Refuse new messages and run the stop hooks; then work in progress is cancelled."""
        self.is_running = False
        for pattern in [] if self._leaves_peer else list(self.peer.subscriptions):
            self.host.bus.unsubscribe(self.peer, pattern)
        await self._run_hooks("on_stop", self.host.limits.stop_seconds)

    async def leave_peer(self) -> LocalPeer:
        """Stop after work in progress is finished; return the peer for the next version."""
        self._leaves_peer = True
        self.peer.take = _be_busy
        with anyio.move_on_after(self.host.limits.stop_seconds):
            if self._busy:
                self._is_idle = anyio.Event()
                await self._is_idle.wait()
        await self.stop()
        return self.peer

    async def reload(self) -> None:
        """Notify the plugin that the settings were read again."""
        await self._run_hooks("on_reload", self.host.limits.start_seconds)

    async def _run_hooks(self, name: str, seconds: float) -> bool:
        """Call the hooks of this name, one after the other; return False if one has failed."""
        with anyio.move_on_after(seconds):
            try:
                for hook in self.plugin.hooks[name]:
                    result = hook(Context(self))
                    if inspect.isawaitable(result):
                        await result
                return True
            except BaseException as problem:
                if not is_fault(problem):
                    raise
                self.blame(name, problem)
                return False
        self.blame(f"{name} took longer than {seconds:g} s")
        return False

    async def wait_started(self) -> None:
        """Wait until it runs or has failed; do not wait for one that ignores cancellation."""
        with anyio.move_on_after(self.host.limits.start_seconds + _GRACE_SECONDS):
            await self._has_tried.wait()

    async def stop(self) -> None:
        """Stop it; abandon one that ignores cancellation."""
        self._must_stop.set()
        seconds = self.host.limits.stop_seconds + _GRACE_SECONDS
        with anyio.move_on_after(seconds, shield=True):
            await self._has_stopped.wait()
            return
        self.blame(f"did not stop within {seconds:g} s")
        self.host.stuck.append(self)
        if not self._leaves_peer:
            self.host.bus.leave(self.peer, "stuck")

    # Messages

    def take(self, call_id: int, message: Message) -> bool:
        """Start to process a message; return False if there are too many."""
        size = memoryview(message.payload).nbytes
        is_full = self._held_bytes + size > _MAX_HELD_BYTES and self._busy
        if is_full or self._busy >= self.host.limits.max_running or self.has_stopped:
            return False
        self._held_bytes += size
        ctx = Context(self, message)
        self._inbox.append((call_id, size, ctx, self._call_plain(ctx)))
        self._begin(self._answer_next)
        return True

    def _call_plain(self, ctx: Context) -> Begun:
        """Call a plain function at once, in the order of messages.

        It may return an awaitable; an async function starts later, in its task.
        """
        try:
            handler = self.plugin.find(ctx.to, ctx.type)
            if inspect.iscoroutinefunction(handler.function) or self._depth >= _MAX_DEPTH:
                return partial(handler.call, ctx)
            self._depth += 1
            try:
                answer = handler.call(ctx)
            finally:
                self._depth -= 1
            return lambda: answer
        except BaseException as problem:  # a plain function cannot be cancelled
            return partial(_raise, problem)

    async def _answer_next(self) -> None:
        call_id, size, ctx, begun = self._inbox.popleft()
        ack = failed_ack(f"plugin {self.name} was stopped")
        try:
            ack = await self._answer(ctx, begun)
        finally:
            self._held_bytes -= size
            self.peer.answer(call_id, ack)
            self.host.flush_soon()

    async def _answer(self, ctx: Context, begun: Begun) -> Ack:
        """Return the plugin's answer; an exception becomes a failed ack."""
        seconds = self.host.limits.handler_seconds
        with anyio.move_on_after(seconds):
            try:
                ack = ack_of(await _outcome(begun), ctx.to)
                self.handled += 1
                return ack
            except BaseException as problem:
                if not is_fault(problem):
                    raise
                self.blame(f"{ctx.type or 'a message'} to {ctx.to}", problem)
                return failed_ack(f"plugin {self.name} failed")
        self.blame(f"{ctx.type or 'a message'} to {ctx.to} took longer than {seconds:g} s")
        return failed_ack(f"plugin {self.name} did not answer in time")

    def _begin(self, work: Work) -> None:
        self._busy += 1

        async def counted() -> None:
            try:
                await work()
            finally:
                self._busy -= 1
                if not self._busy and self._is_idle is not None:
                    self._is_idle.set()

        self.tasks.start_soon(counted)

    # Methods

    def call_method(
        self,
        method: PluginMethod,
        peer: RemotePeer,
        params: Any,
        asker: Asker,
        request_id: RequestId,
    ) -> object:
        """Answer a JSON-RPC method from a task of the plugin."""
        if method.admin and not peer.rights.is_admin:
            raise AccessRefused(f"{peer.name} is no admin here", rule="grant.admin")
        is_able = self.is_running and not self._leaves_peer
        if not is_able or self._busy >= self.host.limits.max_running:
            raise Busy(f"plugin {self.name} is busy", retrySeconds=1)

        async def answer() -> None:
            ctx = Context(self, sender=peer.name)
            try:
                asker.answer(request_id, await self._run_method(method, params, ctx))
            except RequestError as fault:
                asker.fail(request_id, fault)
            self.host.flush_soon()

        self._begin(answer)
        return DEFERRED

    async def _run_method(self, method: PluginMethod, params: Any, ctx: Context) -> Raw:
        """Return the result as JSON; one that cannot be encoded is the plugin's fault, too."""
        seconds = self.host.limits.handler_seconds
        with anyio.move_on_after(seconds):
            try:
                function = method.function
                result = function(params, ctx) if method.wants_context else function(params)
                if inspect.isawaitable(result):
                    result = await result
                if not isinstance(result, method.result):
                    raise TypeError(f"it gave {type(result).__name__}")
                encoded = msgspec.json.encode(result)
                self.handled += 1
                return Raw(encoded)
            except Refuse as refusal:
                self.handled += 1
                raise _as_request_error(refusal, self.name) from None
            except BaseException as problem:
                if not is_fault(problem):
                    raise
                self.blame(f"method {method.name}", problem)
                raise PluginError(f"plugin {self.name} failed", plugin=self.name) from None
        self.blame(f"method {method.name} took longer than {seconds:g} s")
        raise PluginError(f"plugin {self.name} did not answer in time", plugin=self.name)

    def blame(self, what: str, problem: BaseException | None = None) -> None:
        """Record a fault in the log, in the metrics and in the list of plugins."""
        self.faults += 1
        why = "" if problem is None else f": {_said(problem)}"
        self.last_fault = f"{what}{why}"[:_MAX_FAULT_CHARACTERS]
        if not self._blames.take():
            self.log.error("plugin.failed", reason=self.last_fault, exc_info=problem)


def _be_busy(call_id: int, message: Message) -> bool:
    """Refuse a message because the plugin is being restarted."""
    return False


def _raise(problem: BaseException) -> None:
    raise problem


def _said(problem: BaseException) -> str:
    """Return the text of an exception, even if its `__str__` fails."""
    name = type(problem).__name__
    try:
        return f"{name}: {problem}".encode(errors="replace").decode()
    except BaseException:
        return name


async def _outcome(begun: Begun) -> Any:
    """Return a handler's result or Refuse; raise any other exception of the handler."""
    try:
        answer = begun()
        return await answer if inspect.isawaitable(answer) else answer
    except Refuse as refusal:
        return failed_ack(str(refusal.reason), refusal.retry_seconds)


def ack_of(answer: Any, address: str) -> Ack:
    """Return the ack with a handler's result; raise TypeError if it cannot be a payload."""
    if isinstance(answer, Ack):
        answer.payload = payload_of(answer.payload, address)
        return msgspec.json.decode(msgspec.json.encode(answer), type=Ack)  # as a peer's is read
    return Ack() if answer is None else Ack(payload=payload_of(answer, address))


def _as_request_error(refusal: Refuse, plugin: str) -> RequestError:
    reason = str(refusal.reason).encode(errors="replace").decode()
    if refusal.retry_seconds is not None:
        return Busy(reason, retrySeconds=refusal.retry_seconds, plugin=plugin)
    return InvalidParams(reason, rule=f"plugin.{plugin}")
