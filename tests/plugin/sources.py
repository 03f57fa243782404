"""Plugins as their authors write them, good and bad."""

from __future__ import annotations

# Word for word what the style guide shows.
GREET = '''"""Greet: answer every `hello` with a greeting."""

import msgspec

from busd import Context, Plugin, Refuse, message

plugin = Plugin("greet")


@message("hello")
class Hello(msgspec.Struct):
    text: str


@plugin.handles(to="app:greet")
async def greet(hello: Hello, ctx: Context) -> Hello:
    if not hello.text:
        raise Refuse("nothing to greet")
    return Hello(text=f"{hello.text} to you, {ctx.sender}")
'''

# One address for each way to go wrong.
FAULTY = '''"""Faulty: goes wrong in every way."""

from __future__ import annotations

import sys

import anyio
import msgspec
from msgspec import Raw

from busd import Ack, Context, Plugin, Refuse, message

plugin = Plugin("faulty", version="0.1")


@plugin.handles(to="bad:raise")
async def raises(payload: Raw) -> None:
    raise ValueError("the secret is 12345")


@plugin.handles(to="bad:exit")
def exits(payload: Raw) -> None:
    sys.exit(3)


@plugin.handles(to="bad:hang")
async def hangs(payload: Raw) -> None:
    await anyio.sleep_forever()


@plugin.handles(to="bad:nonsense")
async def nonsense(payload: Raw) -> int:
    return 7


@plugin.handles(to="bad:ack")
async def bad_ack(payload: Raw) -> Ack:
    return Ack(True, 5)


@plugin.handles(to="bad:unwritable")
async def unwritable(payload: Raw) -> dict:
    return {"x": object()}


@plugin.handles(to="bad:leak")
async def leaks(payload: Raw, ctx: Context) -> dict:
    ctx.tasks.start_soon(fail)
    return {"leaked": True}


async def fail() -> None:
    raise RuntimeError("leaked")


@plugin.on_peer_joined
def joined(name: str, ctx: Context) -> None:
    if name.startswith("cursed"):
        raise KeyError(name)


class Nothing(msgspec.Struct):
    pass


@plugin.method("faulty.raise")
async def method(params: Nothing) -> Nothing:
    """Fail."""
    raise ValueError("the secret is 12345")


@plugin.method("faulty.hang")
async def hanging(params: Nothing) -> Nothing:
    """Hang."""
    await anyio.sleep_forever()


@plugin.method("faulty.nonsense")
async def odd(params: Nothing) -> Nothing:
    """Give nonsense."""
    return 5
'''

# Everything a handler can give, get and do.
GOOD = '''"""Good: does all that can be done."""

from __future__ import annotations

import anyio
import msgspec
from msgspec import Raw

from busd import Ack, Context, Plugin, Refuse, message

plugin = Plugin("good", version="2.0")
seen: list[str] = []


class Own(msgspec.Struct, forbid_unknown_fields=True):
    words: int = 0


@message("ask")
class Ask(msgspec.Struct):
    number: int = 0


@message("tell")
class Tell(msgspec.Struct):
    number: int = 0


@plugin.handles(to=("good:one", "good:two:*"))
def ask(ask: Ask) -> Tell:
    return Tell(ask.number + 1)


@plugin.handles(to="good:one")
async def rest(payload: Raw, ctx: Context) -> dict:
    return {"type": ctx.type, "said_by": ctx.said_by, "sender": ctx.sender, "to": ctx.to}


@plugin.handles(to="good:any")
def take_any(ask: Ask | Refuse) -> Tell:
    return Tell(-1) if isinstance(ask, Refuse) else Tell(ask.number)


@plugin.handles(to="good:none")
def none(payload: Raw) -> None:
    pass


@plugin.handles(to="good:ack")
def ack(payload: Raw) -> Ack:
    return Ack(False, "not now", should_retry=True, retry_seconds=2)


@plugin.handles(to="good:later")
def later(payload: Raw) -> None:
    raise Refuse("too early", retry_seconds=4)


@plugin.handles(to="good:order")
async def order(ask: Ask, ctx: Context) -> dict:
    seen.append(f"{ctx.sender} {ask.number}")
    await anyio.sleep(0)
    return {"seen": [each for each in seen if each.startswith(ctx.sender)]}


@plugin.handles(to="good:send")
async def send(ask: Ask, ctx: Context) -> dict:
    first = ctx.send("tg:friend", Tell(1), sender="app:me", message_id="m-1")
    ctx.post("tg:friend", {"type": "posted"})
    receipt = await first
    again = await first
    lost = await ctx.send("nobody:here", {})
    bad = await ctx.send("bad address", {})
    long = await ctx.send("tg:friend", {}, message_id="m" * 257)
    return {
        "acks": [each.client_id for each in receipt.acks],
        "answer": receipt.acks[0].read(),
        "again": again is receipt,
        "lost": lost.undelivered,
        "bad": [bad.accepted, bad.undelivered],
        "long": [long.accepted, long.undelivered],
    }


@plugin.handles(to="good:forward")
async def forward(payload: Raw, ctx: Context) -> Ack:
    receipt = await ctx.forward("tg:friend")
    return receipt.acks[0]


@plugin.handles(to="late:*", subscribe=False)
async def late(payload: Raw, ctx: Context) -> dict:
    receipt = await ctx.forward()
    return {"others": [each.client_id for each in receipt.acks]}


@plugin.handles(to="good:subscribe")
def subscribe(payload: Raw, ctx: Context) -> dict:
    ctx.subscribe("late:1")
    ctx.unsubscribe("never:subscribed")
    return {"present": ctx.is_present("tg:friend"), "absent": ctx.is_present("tg:nobody")}


@plugin.handles(to="good:place")
def place(payload: Raw, ctx: Context) -> dict:
    return {
        "address": ctx.bus_address,
        "state": str(ctx.state),
        "policy": ctx.settings.policy,
        "words": ctx.own_settings(Own).words,
    }


class Params(msgspec.Struct, rename="camel"):
    a_number: int


class Result(msgspec.Struct, rename="camel"):
    the_number: int
    asked_by: str


@plugin.method("good.double")
async def double(params: Params, ctx: Context) -> Result:
    """Give twice a number."""
    if params.a_number < 0:
        raise Refuse("only what is positive")
    if params.a_number == 0:
        raise Refuse("not yet", retry_seconds=5)
    return Result(2 * params.a_number, ctx.sender)


@plugin.method("good.secret", admin=True)
def secret(params: Params) -> Result:
    """Give it only to admins."""
    return Result(0, "")
'''

EMPTY = '"""{about}."""\nfrom busd import Plugin\nplugin = Plugin("{name}")\n'

SHARED = {
    "greet.py": GREET,
    "faulty.py": FAULTY,
    "good/__init__.py": "from busd_plugins.good.all import plugin as plugin\n",
    "good/all.py": GOOD,
    "syntax.py": "def f(:\n",
    "raises.py": "raise RuntimeError('no luck')\n",
    "exits.py": "import sys\nsys.exit(1)\n",
    "hangs.py": "import time\ntime.sleep(3600)\n",
    "nothing.py": "x = 1\n",
    "misnamed.py": 'from busd import Plugin\nplugin = Plugin("No Good")\n',
    "notaplugin.py": "plugin = 5\n",
    "unwanted.py": EMPTY.format(name="unwanted", about="Unwanted"),
    "twin.py": EMPTY.format(name="greet", about="Twin"),
    "zredefines.py": GREET.replace('"greet"', '"zredefines"').replace("app:greet", "app:other"),
    "zbub.py": GREET.replace('"greet"', '"zbub"')
    .replace("app:greet", "app:bub")
    .replace('"hello"', '"tg_message"'),
    "zaddress.py": GREET.replace('"greet"', '"zaddress"').replace('"hello"', '"zhello"'),
    "zmethod.py": EMPTY.format(name="zmethod", about="Takes a method of the bus")
    + "import msgspec\nclass N(msgspec.Struct): pass\n"
    + '@plugin.method("bus.trace")\ndef f(n: N) -> N: return n\n',
    "zzmethod.py": EMPTY.format(name="zzmethod", about="Takes a method of another plugin")
    + "import msgspec\nclass N(msgspec.Struct): pass\n"
    + '@plugin.method("good.double")\ndef f(n: N) -> N: return n\n',
    "slow_start.py": EMPTY.format(name="slow_start", about="Never ready")
    + "import anyio\n@plugin.on_start\nasync def f(ctx): await anyio.sleep_forever()\n",
    "bad_start.py": EMPTY.format(name="bad_start", about="Cannot start")
    + "@plugin.on_start\nasync def f(ctx): raise OSError('no disk')\n",
    "asyncjoined.py": EMPTY.format(name="asyncjoined", about="Waits where it must not")
    + "@plugin.on_peer_joined\nasync def f(name, ctx): pass\n",
    "nokind.py": EMPTY.format(name="nokind", about="Takes no message")
    + '@plugin.handles(to="x:y")\ndef f(value: dict): pass\n',
    "_private.py": "raise RuntimeError('nobody imports this')\n",
}

TOY_BRIDGE = '''"""Toy: connects a toy system."""

import msgspec

from busd import Bridge, Plugin

plugin = Plugin("toy")


class ToyTable(msgspec.Struct):
    token_file: str = ""


@plugin.bridge
async def serve(bridge: Bridge, table: ToyTable) -> None:
    await bridge.serve()
'''
