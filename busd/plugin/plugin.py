"""A plugin as its author writes it: which messages, moments and methods it answers."""

from __future__ import annotations

import inspect
import re
import types
import typing
from collections.abc import Callable
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
Check = Callable[[str, str], str | None]
NameCheck = Callable[[str, Identity], str | None]
Speakers = Callable[[str, str, Raw], list[str]]
_NAME = re.compile(r"[a-z][a-z0-9_-]{0,63}")
_METHOD = re.compile(r"[a-z][A-Za-z0-9_-]*(\.[a-zA-Z0-9_-]+)+")


class Handler(msgspec.Struct, frozen=True):
    """One function that answers messages of one type (or of any) to some addresses."""

    function: Callable[..., Any]
    patterns: tuple[str, ...]
    kind: type  # of its first parameter: a struct that has a type, or Raw
    wants_refusals: bool  # gets the Refuse itself if the payload does not fit `kind`
    wants_context: bool
    subscribes: bool

    @property
    def type_name(self) -> str:
        """The type of message it takes; "" for any."""
        return "" if self.kind is Raw else type_name_of(self.kind)

    def takes(self, to: str) -> bool:
        return any(matches(pattern, to) for pattern in self.patterns)

    def call(self, ctx: Context) -> Any:
        """Return what the function returns; raise Refuse if the payload is not what it takes."""
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
        self.hooks: dict[str, list[Callable[..., Any]]] = {name: [] for name in HOOKS}

    def __repr__(self) -> str:
        return f"<Plugin {self.name}>"

    def handles(self, *, to: str | tuple[str, ...], subscribe: bool = True) -> Callable[[F], F]:
        """Have a function answer the messages to an address or pattern.

        Its first parameter's annotation says which: a struct with `@message`, or `Raw` for every
        type that no other handler takes. With `Struct | Refuse` the function also gets payloads
        of that type that do not fit the struct, as the Refuse that says why. With
        `subscribe=False` it answers only what comes by subscriptions that `ctx.subscribe` adds
        later.
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
        """Have a function answer a JSON-RPC method of the bus; its docstring describes it.

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
        """Ask a plain function, where access is checked, if a sender may send a type.

        It gives the reason if not, else None.
        """
        self.checks_by.append(_plain(function))
        return function

    def names_speakers(self, function: Speakers) -> Speakers:
        """Ask a plain function, where access is checked, in whose name else a message is taken.

        It gets the sender, the type and the payload, and gives the addresses that the content
        names: the bus refuses the message unless its sender may speak as all of them.
        """
        self.speakers_named_by.append(_plain(function))
        return function

    def checks_names(self, function: NameCheck) -> NameCheck:
        """Ask a plain function, whatever the policy, if a newcomer may take a name.

        It gets the name and the newcomer's `Identity`, and gives the reason if not, else None.
        """
        self.names_checked_by.append(_plain(function))
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
        """Call `def f(name, ctx)` in the moment a connection has taken a name."""
        return self._hook("on_peer_joined", _plain(function))

    def on_peer_left(self, function: F) -> F:
        """Call `def f(name, ctx)` in the moment the last connection of a name is gone."""
        return self._hook("on_peer_left", _plain(function))

    def _hook(self, name: str, function: F) -> F:
        self.hooks[name].append(function)
        return function

    # What the host asks

    @property
    def patterns(self) -> list[str]:
        """What it subscribes to by itself."""
        found = [pattern for each in self.handlers if each.subscribes for pattern in each.patterns]
        return list(dict.fromkeys(found))

    @property
    def types(self) -> dict[str, type]:
        """The message types it takes, by name."""
        return {each.type_name: each.kind for each in self.handlers if each.type_name}

    def find(self, to: str, type_name: str) -> Handler:
        """Return the handler of a message; raise Refuse, naming the types taken, if none is."""
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


HOOKS = ("on_start", "on_stop", "on_reload", "on_peer_joined", "on_peer_left")


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
    """Return an annotation as what it means, also where annotations are kept as text."""
    if not isinstance(said, str):
        return said
    # Only this one is looked up: the others may be imported for type checkers alone.
    alone = types.SimpleNamespace(__annotations__={name: said})
    try:
        return typing.get_type_hints(alone, getattr(function, "__globals__", {}))[name]
    except NameError:
        raise TypeError(f"{_said(function)}: {said!r} is not known there") from None


def _said(function: Callable[..., Any]) -> str:
    return str(getattr(function, "__name__", function))
