"""A plugin as its author defines it: its message handlers, hooks and methods."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
from msgspec import Raw

from busd.bus.access import Identity, matches
from busd.bus.address import check_pattern
from busd.errors import Refuse, RequestError
from busd.vocabulary.payload import read_message, type_name_of

if TYPE_CHECKING:
    from busd.plugin.context import Context

F = TypeVar("F", bound=Callable[..., Any])
D = TypeVar("D", bound=type[Any])  # a `Dialect`; the layer that defines it is above this one
Check = Callable[[str, str], str | None]
NameCheck = Callable[[str, Identity], str | None]
Speakers = Callable[[str, str, Raw], list[str]]
MailClaim = Callable[[str], bool]
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_PATH = re.compile(r"(/[\w.-]+)*(/\{room\})?/?")
_METHOD = re.compile(r"[a-z][A-Za-z0-9_-]*(\.[a-zA-Z0-9_-]+)+")


class Handler(msgspec.Struct, frozen=True):
    """One function that answers messages of one type (or of any) to some addresses."""

    function: Callable[..., Any]
    patterns: tuple[str, ...]
    kind: type  # of its first parameter: a struct that has a type, or Raw
    wants_refusals: bool  # gets the Refuse itself if the payload is not a valid `kind`
    wants_context: bool
    subscribes: bool

    @property
    def type_name(self) -> str:
        """The type of message it takes; "" for any."""
        return "" if self.kind is Raw else type_name_of(self.kind)

    def takes(self, to: str) -> bool:
        return any(matches(pattern, to) for pattern in self.patterns)

    def call(self, ctx: Context) -> Any:
        """Return what the function returns; raise Refuse if the payload is invalid."""
        value: object = ctx.payload
        if self.kind is not Raw:
            try:
                value = read_message(ctx.payload, self.kind)
            except Refuse as refusal:
                if not self.wants_refusals:
                    raise
                value = refusal
        return self.function(value, ctx) if self.wants_context else self.function(value)


class PluginMethod(msgspec.Struct, frozen=True):
    """One function that answers a JSON-RPC method of the bus."""

    name: str
    function: Callable[..., Any]
    params: type
    result: type
    wants_context: bool
    admin: bool


class BridgeProgram(msgspec.Struct, frozen=True):
    """What a bridge's own process runs: `async def serve(bridge, table)`."""

    serve: Callable[[Any, Any], Awaitable[None]]  # a `Bridge`, which a layer above defines
    table: type[msgspec.Struct]  # of its settings


class Plugin:
    """The one object called `plugin` in a plugin's module."""

    def __init__(self, name: str, *, version: str = "") -> None:
        if not _NAME.fullmatch(name):
            raise ValueError(f"a plugin's name is like my_plugin-2, not {name!r}")
        self.name = name
        self.version = version
        self.handlers: list[Handler] = []
        self.methods: dict[str, PluginMethod] = {}
        self.checks_by: list[Check] = []
        self.names_checked_by: list[NameCheck] = []
        self.speakers_named_by: list[Speakers] = []
        self.mail_kept_by: list[MailClaim] = []
        self.hooks: dict[str, list[Callable[..., Any]]] = {name: [] for name in HOOKS}
        self.dialects: dict[str, type[Any]] = {}  # by path; they run in the gateway only
        self.bridge_program: BridgeProgram | None = None  # it runs in a process of its own
        self.mounted: list[Callable[..., Any]] = []  # they run in the gateway only

    def __repr__(self) -> str:
        return f"<Plugin {self.name}>"

    def handles(self, *, to: str | tuple[str, ...], subscribe: bool = True) -> Callable[[F], F]:
        """Register a function that answers the messages to an address or pattern.

        The annotation of its first parameter selects the type: a struct with `@message`, or `Raw`
        for every type without a handler. With `Struct | Refuse` the function also gets invalid
        payloads of that type, as the Refuse with the reason. With `subscribe=False` it answers
        only messages received by subscriptions that `ctx.subscribe` adds later.
        """
        patterns = (to,) if isinstance(to, str) else tuple(to)
        for pattern in patterns:
            _check(pattern)

        def registered(function: F) -> F:
            annotation, wants_context = _first_parameter(function)
            kind, wants_refusals = _without_refuse(annotation)
            is_struct = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
            if kind is not Raw and not (is_struct and type_name_of(kind)):
                raise TypeError(f"{_said(function)} must take a struct with @message, or Raw")
            handler = Handler(function, patterns, kind, wants_refusals, wants_context, subscribe)
            self._check_free(handler)
            self.handlers.append(handler)
            return function

        return registered

    def _check_free(self, new: Handler) -> None:
        for old in self.handlers:
            if old.type_name == new.type_name and set(old.patterns) & set(new.patterns):
                what = new.type_name or "every type"
                raise ValueError(f"{_said(new.function)}: there is a handler for {what} already")

    def method(self, name: str, *, admin: bool = False) -> Callable[[F], F]:
        """Register a function that answers a JSON-RPC method; its docstring describes the method.

        With `admin=True` only peers with an admin grant may call it.
        """
        if not _METHOD.fullmatch(name):
            raise ValueError(f"a plugin's method is called like group.verb, not {name!r}")

        def registered(function: F) -> F:
            params, wants_context = _first_parameter(function)
            result = _annotation(function, "return", inspect.signature(function).return_annotation)
            for kind in (params, result):
                if not (isinstance(kind, type) and issubclass(kind, msgspec.Struct)):
                    raise TypeError(f"{_said(function)} must take one struct and give another")
            if name in self.methods:
                raise ValueError(f"there is a method {name} already")
            self.methods[name] = PluginMethod(name, function, params, result, wants_context, admin)
            return function

        return registered

    def checks(self, function: Check) -> Check:
        """Register a plain function that decides whether a sender may send a type.

        It returns the reason if not, else None. It is called only where access is checked.
        """
        self.checks_by.append(_plain(function))
        return function

    def names_speakers(self, function: Speakers) -> Speakers:
        """Register a plain function that returns the other addresses a message is sent as.

        It gets the sender, the type and the payload, and returns the addresses in the content: the
        bus refuses the message unless its sender may send as all of them. It is called only where
        access is checked.
        """
        self.speakers_named_by.append(_plain(function))
        return function

    def checks_names(self, function: NameCheck) -> NameCheck:
        """Register a plain function that decides whether a connecting peer may use a name.

        It gets the name and the peer's `Identity`, and returns the reason if not, else None. It is
        called under every policy.
        """
        self.names_checked_by.append(_plain(function))
        return function

    def keeps_mail(self, function: MailClaim) -> MailClaim:
        """Register a plain function that decides for which addresses messages are kept.

        It gets an address and returns whether the plugin starts whoever answers for it. Messages to
        it are kept on the disk while nobody answers, and `on_mail` is called. Their senders wait
        for the answer as if somebody were there.
        """
        self.mail_kept_by.append(_plain(function))
        return function

    def gateway(self, path: str) -> Callable[[D], D]:
        """Register a `Dialect` for the clients that connect to a path of the gateway.

        The path is like `/ws/{room}/`; what stands for `{room}` is passed to the dialect.
        """
        if not _PATH.fullmatch(path):
            raise ValueError(f"the path of a gateway is like /ws/{{room}}/, not {path!r}")

        def registered(dialect: D) -> D:
            if path in self.dialects:
                raise ValueError(f"there is a dialect at {path} already")
            if not re.fullmatch(r"[a-z][a-z0-9_.-]{0,31}", getattr(dialect, "prefix", "")):
                raise TypeError(f"{_said(dialect)} needs a prefix like web: letters and digits")
            self.dialects[path] = dialect
            return dialect

        return registered

    def bridge(self, function: F) -> F:
        """Register `async def serve(bridge, table)`, which connects another chat system to the bus.

        It runs in a process of its own, once, and gets a `Bridge` that is not entered yet. The
        annotation of `table` is the struct of the bridge's settings.
        """
        if self.bridge_program is not None:
            raise ValueError(f"there is a bridge already: {_said(self.bridge_program.serve)}")
        parameters = list(inspect.signature(function).parameters.values())
        if not inspect.iscoroutinefunction(function) or len(parameters) != 2:
            raise TypeError(
                f"{_said(function)} must be `async def {_said(function)}(bridge, table)`"
            )
        table = _annotation(function, parameters[1].name, parameters[1].annotation)
        if not (isinstance(table, type) and issubclass(table, msgspec.Struct)):
            raise TypeError(f"{_said(function)}: annotate {parameters[1].name} with a struct")
        self.bridge_program = BridgeProgram(function, table)
        return function

    def mounts(self, function: F) -> F:
        """Register an HTTP application of the gateway: an async context manager.

        It gets a `busd.gateway.Site`, yields the routes of Starlette to be served, and lasts as
        long as the gateway. The gateway imports the plugin only if its `DeclaredSettings` say so:
        see `serves_http` there.
        """
        if len(inspect.signature(function).parameters) != 1:
            raise TypeError(f"{_said(function)} must take one parameter, the site")
        self.mounted.append(function)
        return function

    # Hooks: all of them may be used several times

    def on_start(self, function: F) -> F:
        """Call `async def f(ctx)` before the bus is ready, or when the plugin is loaded later."""
        return self._hook("on_start", function)

    def on_stop(self, function: F) -> F:
        """Call `async def f(ctx)` before the plugin's tasks are cancelled."""
        return self._hook("on_stop", function)

    def on_reload(self, function: F) -> F:
        """Call `async def f(ctx)` after the settings were read again."""
        return self._hook("on_reload", function)

    def on_peer_joined(self, function: F) -> F:
        """Call `def f(name, ctx)` as soon as a connection has taken a name."""
        return self._hook("on_peer_joined", _plain(function))

    def on_peer_left(self, function: F) -> F:
        """Call `def f(name, ctx)` as soon as the last connection of a name is closed."""
        return self._hook("on_peer_left", _plain(function))

    def on_mail(self, function: F) -> F:
        """Call `def f(address, ctx)` for each message kept for an absent peer of `keeps_mail`."""
        return self._hook("on_mail", _plain(function))

    def on_dead_letter(self, function: F) -> F:
        """Call `def f(reason, ctx)` when such a message is given up and no sender learns of it."""
        return self._hook("on_dead_letter", _plain(function))

    def on_loop(self, function: F) -> F:
        """Call `def f(path, rule, ctx)` when messages of these addresses are found in a loop."""
        return self._hook("on_loop", _plain(function))

    def _hook(self, name: str, function: F) -> F:
        self.hooks[name].append(function)
        return function

    # For the host

    @property
    def has_no_daemon_part(self) -> bool:
        """True if it has parts for other processes, and nothing that is to run in the daemon."""
        rules = (self.checks_by, self.names_checked_by, self.speakers_named_by, self.mail_kept_by)
        work = (self.handlers, self.methods, *self.hooks.values(), *rules)
        has_bridge = self.bridge_program is not None
        return bool(self.dialects or self.mounted or has_bridge) and not any(work)

    @property
    def patterns(self) -> list[str]:
        """The patterns it subscribes to automatically."""
        found = [pattern for each in self.handlers if each.subscribes for pattern in each.patterns]
        return list(dict.fromkeys(found))

    @property
    def types(self) -> dict[str, type]:
        """The message types it handles, by name."""
        return {each.type_name: each.kind for each in self.handlers if each.type_name}

    def find(self, to: str, type_name: str) -> Handler:
        """Return the handler of a message; raise Refuse with the handled types if there is none."""
        here = [handler for handler in self.handlers if handler.takes(to)]
        for handler in here:
            if handler.type_name == type_name and handler.kind is not Raw:
                return handler
        for handler in here:
            if handler.kind is Raw:
                return handler
        if not here:
            raise Refuse(f"plugin {self.name} takes no messages to {to}")
        taken = ", ".join(dict.fromkeys(handler.type_name for handler in here))
        came = type_name[:100] if type_name else "a message without a type"
        raise Refuse(f"{to} takes {taken}; this is {came}")


HOOKS = (
    "on_start",
    "on_stop",
    "on_reload",
    "on_peer_joined",
    "on_peer_left",
    "on_mail",
    "on_dead_letter",
    "on_loop",
)


def _check(pattern: str) -> None:
    try:
        check_pattern(pattern)
    except RequestError as problem:
        raise ValueError(problem.message) from None


def _plain(function: F) -> F:
    if inspect.iscoroutinefunction(function):
        raise TypeError(f"{_said(function)} must be a plain function: it is called at once")
    return function


def _first_parameter(function: Callable[..., Any]) -> tuple[Any, bool]:
    """Return the first parameter's annotation, and whether there is a second for the context."""
    parameters = list(inspect.signature(function).parameters.values())
    if len(parameters) not in (1, 2):
        raise TypeError(f"{_said(function)} must take one value and, if it wants, the context")
    first = parameters[0]
    return _annotation(function, first.name, first.annotation), len(parameters) == 2


def _without_refuse(annotation: Any) -> tuple[Any, bool]:
    """Return the struct of `Struct | Refuse` and True; any other annotation as it is and False."""
    kinds = list(typing.get_args(annotation))
    if len(kinds) != 2 or Refuse not in kinds:
        return annotation, False
    kinds.remove(Refuse)
    return kinds[0], True


def _annotation(function: Callable[..., Any], name: str, said: Any) -> Any:
    """Return a resolved annotation, also where annotations are stored as text."""
    if not isinstance(said, str):
        return said
    # Only this one is resolved: the others may be imported for type checkers only.
    alone = types.SimpleNamespace(__annotations__={name: said})
    try:
        return typing.get_type_hints(alone, getattr(function, "__globals__", {}))[name]
    except NameError:
        raise TypeError(f"{_said(function)}: {said!r} is not known there") from None


def _said(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", function))
