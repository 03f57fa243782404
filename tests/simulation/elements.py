"""What one peer can say: single requests, notifications and replies, with their effects."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from tests.simulation.actor import Actor, Asked
from tests.simulation.ledger import claim
from tests.simulation.oracle import replies
from tests.simulation.world import Effect, World

NAMES = ["a:1", "a:2", "b:1", "b:2", "ab", "c"]
PATTERNS = [*NAMES, "a:*", "b:*", "*", "?:1", "a*", "*2", "*:*", "a:?", "??", "*b*", "a*1", "x*"]
MALFORMED_ADDRESSES = ["", "a b", "a:*", "?", "x" * 256, "\n"]
# JSON that is no request, and the error it gets; none of them can be told whose it was.
NO_REQUESTS = ["1", '"x"', "null", "{}", '{"jsonrpc":"1.0","method":"ping"}']
NO_REQUESTS_WITH_ID = ['{"id":%s}', '{"jsonrpc":"1.0","method":"ping","id":%s}']


@dataclass
class Element:
    """One JSON text, what it does when the bus reads it, and the answer it wants, if any."""

    text: str
    effect: Effect
    asked: Asked | None = None


class Talk:
    """Makes up what peers say."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.random = world.random

    def any(self, actor: Actor) -> Element:
        makers = [self.send] * 8 + [self.notify] * 3 + [self.refused, self.no_request]
        makers += [self.subscribe] * 2 + [self.unsubscribe, self.ping, self.initialize_again]
        if actor.todo:
            makers += [self.reply] * 8
        return self.random.choice(makers)(actor)

    # Messages

    def _params(self, actor: Actor) -> dict[str, Any]:
        world, random = self.world, self.random
        world.messages += 1
        params: dict[str, Any] = {
            "to": random.choice([*NAMES, *NAMES, "nobody"]),
            "payload": {"n": world.messages, "é": "x" * random.choice([0, 10, 100, 700])},
        }
        if random.random() < 0.5:
            params["messageId"] = f"m{world.messages}"
        if random.random() < 0.3:
            params["from"] = actor.name if world.policy == "strict" else random.choice(NAMES)
        return params

    def send(self, actor: Actor) -> Element:
        params = self._params(actor)
        record, effect = self.world.record(actor, params["to"], params)
        request_id = self.world.request_id()
        asked = Asked(request_id, lambda r: self.world.ledger.check_receipt(record, r), record)
        return Element(_request("sendMessage", params, request_id), effect, asked)

    def notify(self, actor: Actor) -> Element:
        params = self._params(actor)
        _, effect = self.world.record(actor, params["to"], params)
        return Element(_request("sendMessage", params), effect)

    def refused(self, actor: Actor) -> Element:
        """A message that the bus may not accept."""
        params: Any = self._params(actor)
        match self.random.randrange(5):
            case 0:
                params["to"] = self.random.choice(MALFORMED_ADDRESSES)
            case 1:
                # One that is empty means the peer itself.
                params["from"] = self.random.choice([each for each in MALFORMED_ADDRESSES if each])
            case 2:
                params["payload"] = self.random.choice([None, 1, "{}", [{}]])
            case 3:
                params = list(params.values())
            case _:
                params["from"] = "someone:else"
                if self.world.policy == "open":
                    del params["payload"]
        return self._ask("sendMessage", params, is_error(-32602))

    # Other requests

    def subscribe(self, actor: Actor) -> Element:
        pattern = self.random.choice(PATTERNS)
        element = self._ask("subscribe", {"address": pattern}, is_result({"success": True}))
        element.effect = lambda: actor.patterns.add(pattern)
        return element

    def unsubscribe(self, actor: Actor) -> Element:
        pattern = self.random.choice(sorted(actor.patterns | {"never:*"}))
        was_subscribed: list[bool] = []

        def effect() -> None:
            was_subscribed.append(pattern in actor.patterns)
            actor.patterns.discard(pattern)

        def check(reply: dict[str, Any]) -> None:
            right = is_result({"success": True}) if was_subscribed[0] else is_error(-32003)
            right(reply)

        element = self._ask("unsubscribe", {"address": pattern}, check)
        element.effect = effect
        return element

    def ping(self, actor: Actor) -> Element:
        return self._ask("ping", {}, lambda r: claim("timestamp" in r["result"], f"no time: {r}"))

    def initialize_again(self, actor: Actor) -> Element:
        return self._ask("initialize", {"clientId": "x"}, is_error(-32001))

    def initialize(self, actor: Actor, name: str) -> Element:
        element = self._ask(
            "initialize", {"clientId": name}, lambda r: claim("result" in r, f"may not join: {r}")
        )

        def effect() -> None:
            actor.name = name
            actor.patterns.add(name)

        element.effect = effect
        return element

    def too_early(self) -> Element:
        """Anything before `initialize`."""
        method = self.random.choice(["ping", "sendMessage", "subscribe", "no such"])
        params = {"to": "a:1", "payload": {}, "address": "*"}
        return self._ask(method, params, is_error(-32001))

    def no_request(self, actor: Actor) -> Element:
        text = self.random.choice([*NO_REQUESTS, *NO_REQUESTS_WITH_ID])
        if "%s" not in text:
            return Element(text, _nothing, Asked(None, is_error(-32600)))
        request_id = self.world.request_id()
        text %= json.dumps(request_id)
        return Element(text, _nothing, Asked(request_id, is_error(-32600)))

    def _ask(self, method: str, params: Any, check: Callable[[dict[str, Any]], None]) -> Element:
        request_id = self.world.request_id()
        asked = Asked(request_id, check)
        return Element(_request(method, params, request_id), _nothing, asked)

    # Replies

    def reply(self, actor: Actor) -> Element:
        """Answer a message that waits, not always the first."""
        number = actor.todo.pop(self.random.randrange(min(3, len(actor.todo))))
        actor.done.append(number)
        return self._reply(actor, number)

    def reply_again(self, actor: Actor) -> Element:
        return self._reply(actor, self.random.choice(actor.done[-5:]))

    def _reply(self, actor: Actor, number: int) -> Element:
        token = f"{actor.uid}.{number}.{self.random.randrange(10**6)}"
        padding = "y" * self.random.choice([1, 200, 500])
        chosen = self.random.choice(replies(token, padding))
        text = f'{{"jsonrpc":"2.0","id":{actor.seen[number].call_id},{chosen.member}}}'
        ledger = self.world.ledger
        return Element(text, lambda: ledger.answer(actor, number, chosen.ack))

    def reply_for_another(self, actor: Actor, other: Actor) -> Element | None:
        """Answer a message that was handed to somebody else and not to this peer."""
        records = self.world.ledger.records
        numbers = [n for n in other.todo if actor not in records[n].fates]
        if not numbers:
            return None
        call_id = other.seen[self.random.choice(numbers)].call_id
        member = self.random.choice(replies(f"thief {actor.uid}", "z")).member
        return Element(f'{{"jsonrpc":"2.0","id":{call_id},{member}}}', _nothing)


def _request(method: str, params: object, request_id: object = None) -> str:
    request = {"jsonrpc": "2.0", "method": method, "params": params}
    if request_id is not None:
        request["id"] = request_id
    return json.dumps(request)


def _nothing() -> None:
    """No effect."""


def is_result(result: object) -> Callable[[dict[str, Any]], None]:
    return lambda r: claim(r.get("result") == result, f"{r} instead of {result}")


def is_error(code: int) -> Callable[[dict[str, Any]], None]:
    return lambda r: claim(r.get("error", {}).get("code") == code, f"{r} instead of {code}")
