"""The plugin host: starts, stops and reloads plugins, and isolates their faults."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Annotated, Any, Literal, Protocol

import anyio
import msgspec
import structlog
from anyio.abc import TaskGroup

from busd.bus.bus import Bus
from busd.bus.local import MAX_SHOWN, LocalPeer
from busd.bus.mail import Mail
from busd.bus.peer import RemotePeer
from busd.errors import AccessRefused, Busy, InvalidParams, PluginError
from busd.plugin.loader import BadPlugin, Candidate, LoadedPlugin, find_candidates, load
from busd.plugin.plugin import PluginMethod
from busd.plugin.running import RunningPlugin
from busd.quantities import Count, Seconds, about
from busd.rpc.endpoint import Asker
from busd.rpc.envelope import RequestId
from busd.vocabulary.bub import BUB_TYPES
from busd.vocabulary.payload import type_name_of
from busd.wire.driver import scheduler

log = structlog.get_logger("busd.plugin")


class PluginSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which plugins run, and within which limits."""

    folders: Annotated[list[str], about("Additional folders to search for plugins.")] = []
    disabled: Annotated[list[str], about("Names of plugins that are not started.")] = []
    max_running: Annotated[
        Count, about("Messages that one plugin may process at a time; beyond that it is busy.")
    ] = 10_000
    handler_seconds: Annotated[Seconds, about("Time a plugin has to answer a message.")] = 45.0
    start_seconds: Annotated[
        Seconds, about("Time a plugin has to be imported, and again to start.")
    ] = 10.0
    stop_seconds: Annotated[Seconds, about("Time a plugin has to stop.")] = 10.0
    settings: Annotated[
        dict[str, dict[str, Any]], about("One table per plugin that has its own settings.")
    ] = {}


class HostSettings(Protocol):
    """The part of the daemon's settings that the host reads; plugins can read all of them."""

    @property
    def plugins(self) -> PluginSettings: ...
    @property
    def state(self) -> str: ...


# outdated: it runs, but its files have changed since, and the new version was refused;
# gateway: it has dialects and nothing else, so it runs in the process of the gateway
PluginState = Literal["running", "outdated", "faulty", "disabled", "gateway", "bridge"]
PluginChange = Literal["started", "restarted", "stopped"]


class PluginStatus(msgspec.Struct, rename="camel"):
    """One plugin as `bus.listPlugins` shows it."""

    name: str
    version: str
    origin: str
    state: PluginState
    about: str = ""
    addresses: list[str] = []
    types: list[str] = []
    hooks: list[str] = []
    methods: list[str] = []
    handled: int = 0
    faults: int = 0
    last_fault: str = ""


class PluginHost:
    """All plugins of one bus."""

    def __init__(self, bus: Bus, settings: HostSettings, flush: Callable[[], None]) -> None:
        self.bus = bus
        self.settings = settings
        self.bus_address = ""
        self.web_socket_address = ""
        self.loaded: dict[str, LoadedPlugin] = {}  # by the plugin's own name
        self.running: dict[str, RunningPlugin] = {}
        self.refused: dict[str, BadPlugin] = {}  # by origin
        self.stuck: list[RunningPlugin] = []  # cannot be stopped
        self.disabled: list[Candidate] = []
        self.elsewhere: dict[str, LoadedPlugin] = {}  # by origin; imported, not started: their
        # dialects run in the gateway, their bridges in processes of their own
        self._flush = flush
        self._is_flush_due = False
        self._schedule: Callable[[Callable[[], None]], object] | None = None
        self._tasks: TaskGroup | None = None
        self._lock = anyio.Lock()
        bus.watchers.append(self)
        bus.loops.watchers.append(self.on_loop)
        if bus.mailboxes is not None:
            bus.mailboxes.watchers.append(self)

    @property
    def limits(self) -> PluginSettings:
        return self.settings.plugins

    # Start, reload, stop

    async def start(self, tasks: TaskGroup) -> None:
        """Start all plugins that are found; return when each runs or has failed."""
        self._tasks = tasks
        await self._renew()

    async def reload(self, settings: HostSettings) -> dict[str, PluginChange]:
        """Start new plugins, stop vanished ones, restart changed ones, notify the others.

        Return what has changed, by the plugin's name.
        """
        self.settings = settings
        before = dict(self.running)
        await self._renew()
        for name, running in before.items():
            if self.running.get(name) is running and running.is_running:
                await running.reload()
        return self._changes_since(before)

    def _changes_since(self, before: dict[str, RunningPlugin]) -> dict[str, PluginChange]:
        changes: dict[str, PluginChange] = {}
        for name in sorted(before.keys() | self.running.keys()):
            old, new = before.get(name), self.running.get(name)
            if new is not None and new is not old and new.is_running:
                changes[name] = "restarted" if old else "started"
            elif new is None:
                changes[name] = "stopped"
        return changes

    async def stop(self) -> None:
        """Stop all plugins."""
        self._tasks = None  # a reload in progress starts no more plugins
        async with anyio.create_task_group() as tasks:
            for name in list(self.running):
                tasks.start_soon(self._stop, name)

    @property
    def is_stuck(self) -> bool:
        """True if plugins did not stop: the loop would wait for their tasks forever."""
        return any(not running.has_stopped for running in self.stuck)

    async def _renew(self) -> None:
        async with self._lock:
            candidates = find_candidates(self.limits.folders)
            self.refused.clear()
            self.elsewhere = {
                origin: loaded
                for origin, loaded in self.elsewhere.items()
                if loaded.candidate in candidates
            }
            self.disabled = [each for each in candidates if each.name in self.limits.disabled]
            wanted = {each.origin: each for each in candidates if each not in self.disabled}
            for name, loaded in list(self.loaded.items()):
                is_wanted = loaded.candidate.origin in wanted
                if not is_wanted or name in self.limits.disabled:
                    await self._stop(name)
            fresh = [await self._load(candidate) for candidate in wanted.values()]
            begun = [await self._begin(loaded) for loaded in fresh if loaded is not None]
            for running, before in begun:
                await self._settle_in(running, before)

    async def _load(self, candidate: Candidate) -> LoadedPlugin | None:
        """Import a plugin that is new, has changed or has failed; None if there is none to start.

        If that fails, the previous version stays active.
        """
        same = self._from(candidate.origin)
        if candidate.origin in self.elsewhere:
            return None
        if same and same.candidate == candidate and self.running[same.plugin.name].is_running:
            return None
        found = await load(candidate, self.limits.start_seconds)
        problem = found if isinstance(found, BadPlugin) else self._find_conflict(found)
        if isinstance(problem, BadPlugin):
            self._refuse(problem)
            return None
        assert isinstance(found, LoadedPlugin)
        if found.plugin.name in self.limits.disabled:
            self.disabled.append(candidate)
            return None
        if found.plugin.has_no_daemon_part:
            self.elsewhere[candidate.origin] = found
            if same:
                await self._stop(same.plugin.name)
            return None
        if same:
            del self.loaded[same.plugin.name]
        self.loaded[found.plugin.name] = found
        return found

    def _from(self, origin: str) -> LoadedPlugin | None:
        found = [each for each in self.loaded.values() if each.candidate.origin == origin]
        return found[0] if found else None

    def _find_conflict(self, new: LoadedPlugin) -> BadPlugin | None:
        """Return the conflict over a name, message type, address or method, if there is one."""
        refuse = partial(BadPlugin, new.candidate)
        ours = {type_name_of(kind): kind for kind in BUB_TYPES}
        for name, kind in new.types.items():
            if ours.get(name, kind) is not kind:
                return refuse(f"message type {name} is defined by busd")
        others = [
            each for each in self.loaded.values() if each.candidate.origin != new.candidate.origin
        ]
        for other in others:
            if other.plugin.name == new.plugin.name:
                return refuse(f"the name {new.plugin.name} is taken by {other.candidate.origin}")
            by = f"plugin {other.plugin.name}"
            for name, kind in new.types.items():
                if other.types.get(name, kind) is not kind:
                    return refuse(f"message type {name} is defined by {by}")
            if same := set(new.plugin.patterns) & set(other.plugin.patterns):
                return refuse(f"{min(same)} is taken by {by}")
            if same := new.plugin.methods.keys() & other.plugin.methods.keys():
                return refuse(f"method {min(same)} is taken by {by}")
        of_plugins = {name for each in self.running.values() for name in each.plugin.methods}
        if same := (new.plugin.methods.keys() & self.bus.methods.described.keys()) - of_plugins:
            return refuse(f"method {min(same)} is taken by the bus")
        return None

    def _refuse(self, bad: BadPlugin) -> None:
        self.refused[bad.candidate.origin] = bad
        origin, name = bad.candidate.origin, bad.candidate.name
        log.warning(
            "plugin.refused", plugin=name, origin=origin, reason=bad.reason, exc_info=bad.problem
        )

    async def _begin(self, loaded: LoadedPlugin) -> tuple[RunningPlugin, RunningPlugin | None]:
        """Start a plugin after its previous version has stopped; return both.

        They never run at the same time, because they may need the same file or port.
        """
        peer: LocalPeer | None = None
        before: RunningPlugin | None = None
        for old in list(self.running.values()):
            if old.loaded.candidate.origin != loaded.candidate.origin:
                continue
            if old.is_running and old.name == loaded.plugin.name:
                peer, before = await old.leave_peer(), old
            else:
                await self._end(old)
        running = RunningPlugin(loaded, self, peer)
        if self._tasks is not None:
            self.running[running.name] = running
            self._tasks.start_soon(running.live)
        elif peer is not None:  # the bus is stopping
            self.bus.leave(peer, "stopped")
        return running, before

    async def _settle_in(self, running: RunningPlugin, before: RunningPlugin | None) -> None:
        if self.running.get(running.name) is running:
            await running.wait_started()
        if before is not None:
            self._take_away(before)  # until now its methods have answered "busy"
        if self.running.get(running.name) is not running:
            return
        if not running.is_running:
            await running.stop()
            return
        for method in running.plugin.methods.values():
            self._register(running, method)
        if running.plugin.checks_by:
            self.bus.type_checks.by_plugin[running.name] = running.rules.check
            self.bus.take_type_checks()
        if running.plugin.speakers_named_by:
            self.bus.type_checks.speakers_by_plugin[running.name] = running.rules.speakers_of
        if running.plugin.names_checked_by:
            self.bus.name_checks.by_plugin[running.name] = running.rules.check_name
        if running.plugin.mail_kept_by and self.bus.mailboxes is not None:
            claims = self.bus.mailboxes.policy.claims_by_plugin
            claims[running.name] = running.rules.keeps_mail
        log.info("plugin.started", plugin=running.name, version=running.plugin.version)

    def _register(self, running: RunningPlugin, method: PluginMethod) -> None:
        def call(peer: RemotePeer, params: Any, asker: Asker, request_id: RequestId, /) -> object:
            return running.call_method(method, peer, params, asker, request_id)

        call.__doc__ = method.function.__doc__
        errors = (AccessRefused, InvalidParams, Busy, PluginError)
        register = self.bus.methods.register(
            method.name, method.params, method.result, errors=errors
        )
        register(call)

    async def _stop(self, name: str) -> None:
        self.loaded.pop(name, None)
        if running := self.running.get(name):
            await self._end(running)

    async def _end(self, running: RunningPlugin) -> None:
        del self.running[running.name]
        self._take_away(running)
        await running.stop()
        log.info("plugin.stopped", plugin=running.name)

    def _take_away(self, running: RunningPlugin) -> None:
        """Unregister its methods and its rules from the bus; mail for its addresses stays."""
        for method in running.plugin.methods:
            self.bus.methods.forget(method)
        if self.bus.mailboxes is not None:
            self.bus.mailboxes.policy.claims_by_plugin.pop(running.name, None)
        self.bus.name_checks.by_plugin.pop(running.name, None)
        self.bus.type_checks.speakers_by_plugin.pop(running.name, None)
        if self.bus.type_checks.by_plugin.pop(running.name, None):
            self.bus.take_type_checks()

    # What plugins need of the loop and the bus

    def flush_soon(self) -> None:
        """Write out in the next round of the loop, together with everything this round sends."""
        if self._is_flush_due:
            return
        self._is_flush_due = True
        self._schedule = self._schedule or scheduler()
        self._schedule(self._flush_now)

    def _flush_now(self) -> None:
        self._is_flush_due = False
        self._flush()

    def on_peer_joined(self, name: str) -> None:
        for running in self.running.values():
            running.rules.call_hooks("on_peer_joined", name)

    def on_peer_left(self, name: str) -> None:
        for running in self.running.values():
            running.rules.call_hooks("on_peer_left", name)

    def on_mail(self, mail: Mail) -> None:
        for running in list(self.running.values()):
            running.rules.on_mail(mail)

    def on_dead_letter(self, mail: Mail, reason: str) -> None:
        for running in list(self.running.values()):
            running.rules.on_dead_letter(mail, reason)

    def on_loop(self, path: tuple[str, ...], rule: str) -> None:
        for running in list(self.running.values()):
            running.rules.call_hooks("on_loop", path, rule)

    # What the operator sees

    def describe(self) -> list[PluginStatus]:
        """Return the status of every plugin, one for each origin, also if it does not run."""
        refused = dict(self.refused)
        found = [
            _describe(running, refused.pop(running.loaded.candidate.origin, None))
            for running in self.running.values()
        ]
        found += [
            PluginStatus(
                bad.candidate.name,
                "",
                bad.candidate.origin,
                "faulty",
                faults=1,
                last_fault=bad.reason,
            )
            for bad in refused.values()
        ]
        found += [
            PluginStatus(
                each.plugin.name,
                each.plugin.version,
                origin,
                "gateway" if each.plugin.dialects else "bridge",
                about=each.about,
                types=sorted(each.types),
            )
            for origin, each in self.elsewhere.items()
        ]
        found += [
            PluginStatus(candidate.name, "", candidate.origin, "disabled")
            for candidate in self.disabled
        ]
        return sorted(found, key=lambda each: (each.name, each.origin))


def _addresses(running: RunningPlugin) -> list[str]:
    """Return the patterns it answers: those of its handlers first, then its subscriptions."""
    own = sorted(running.plugin.patterns)
    others = running.peer.subscriptions - {running.peer.name, *own}
    return sorted([*own, *sorted(others)][:MAX_SHOWN])


def _describe(running: RunningPlugin, refused: BadPlugin | None) -> PluginStatus:
    """Return the status of a plugin; `refused` is a new version of its files that was refused."""
    plugin, loaded = running.plugin, running.loaded
    runs: PluginState = "running" if refused is None else "outdated"
    return PluginStatus(
        name=plugin.name,
        version=plugin.version,
        origin=loaded.candidate.origin,
        state=runs if running.is_running else "faulty",
        about=loaded.about,
        addresses=_addresses(running),
        types=sorted(loaded.types),
        hooks=[name for name, functions in plugin.hooks.items() if functions],
        methods=sorted(plugin.methods),
        handled=running.handled,
        faults=running.faults + (refused is not None),
        last_fault=refused.reason if refused else running.last_fault,
    )
