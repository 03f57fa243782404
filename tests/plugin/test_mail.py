"""A plugin that keeps mail: it starts whoever answers, and learns what became of the messages."""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from tests.daemons import Loop
from tests.plugin.conftest import Plugged, joined, open_plugged
from tests.plugin.sources import EMPTY
from tests.wire_peers import Peer

KEEPER = '''"""Keeper: keeps mail for peers that are lazy."""

from __future__ import annotations

from msgspec import Raw

from busd import Context, Plugin

plugin = Plugin("keeper")


def note(ctx: Context, line: str) -> None:
    with (ctx.state / "diary").open("a") as file:
        file.write(line + "\\n")


@plugin.keeps_mail
def keeps_mail(address: str) -> bool:
    if address == "lazy:fault":
        raise RuntimeError("no luck")
    return address.startswith("lazy:")


@plugin.on_mail
def take_mail(address: str, ctx: Context) -> None:
    note(ctx, f"mail {address} {ctx.message_id} {ctx.type}")


@plugin.on_dead_letter
def report(reason: str, ctx: Context) -> None:
    note(ctx, f"dead {ctx.to} {ctx.message_id} {reason}")


@plugin.on_peer_joined
def joined(name: str, ctx: Context) -> None:
    if name.startswith("lazy:"):
        ctx.tell(name, {"type": "first"})


@plugin.handles(to="keeper:forward")
async def forward(payload: Raw, ctx: Context) -> dict:
    sent = ctx.forward("lazy:1", durable=True, patience_seconds=0.3)
    receipt = await sent
    return {
        "undelivered": receipt.undelivered or "",
        "by": [ack.client_id for ack in receipt.acks],
        "retry": sent.retry_seconds,
    }


@plugin.handles(to="keeper:look")
async def look(payload: Raw, ctx: Context) -> dict:
    first = await ctx.mail.first("lazy:1")
    return {
        "waiting": ctx.mail.waiting("lazy:"),
        "is_waiting": ctx.mail.is_waiting("lazy:1"),
        "counts": await ctx.mail.counts("lazy:"),
        "first": "" if first is None else f"{first.sender} {first.message_id} {first.type}",
    }


@plugin.handles(to="keeper:hold")
def hold(payload: Raw, ctx: Context) -> None:
    ctx.mail.hold("lazy:1")


@plugin.handles(to="keeper:let-go")
def let_go(payload: Raw, ctx: Context) -> None:
    ctx.mail.let_go("lazy:1")


@plugin.handles(to="keeper:bury")
async def bury(payload: Raw, ctx: Context) -> dict:
    return {"count": await ctx.mail.bury("lazy:1", "nobody will come")}
'''


def ask(peer: Peer, to: str, **members: Any) -> Any:
    """Return the payload of the one ack."""
    answer = peer.answer_to(peer.send_message(to, {"type": "words"}, **members))
    [ack] = answer["result"]["acks"]
    assert ack["success"], ack
    return ack.get("payload")


def diary(plugged: Plugged) -> list[str]:
    return (plugged.daemon.folder / "state/diary").read_text().splitlines()


def types(peer: Peer, count: int) -> list[str]:
    found = []
    for _ in range(count):
        message = peer.next_message()
        found.append(message["params"]["payload"]["type"])
        peer.answer(message, {"success": True})
    return found


KEPT: dict[str, Any] = {"undelivered": "kept", "by": [], "retry": None}
NOTHING: dict[str, Any] = {"waiting": [], "is_waiting": False, "counts": {}, "first": ""}


def test_mail_for_a_lazy_peer_is_kept_and_handed_over_after_what_the_plugin_tells_it(
    loop: Loop,
) -> None:
    with open_plugged(loop, {"keeper.py": KEEPER}) as plugged, ExitStack() as opened:
        chat = joined(plugged, "tg:1", opened)
        assert ask(chat, "keeper:forward", messageId="m1") == KEPT
        waiting = chat.send_message("lazy:1", {"type": "later"}, messageId="m2")
        assert ask(chat, "keeper:look") == {
            "waiting": ["lazy:1"],
            "is_waiting": True,
            "counts": {"lazy:1": 2},
            "first": "tg:1 m1 words",
        }
        assert diary(plugged) == ["mail lazy:1 m1 words", "mail lazy:1 m2 later"]
        lazy = joined(plugged, "lazy:1", opened)
        assert types(lazy, 3) == ["first", "words", "later"]
        assert chat.answer_to(waiting)["result"]["acks"][0]["clientId"] == "lazy:1"
        again = ask(chat, "keeper:forward", messageId="m1")
        assert again == {"undelivered": "", "by": ["lazy:1"], "retry": None}  # not delivered again
        lazy.expect_nothing()


def test_mail_survives_a_restart_of_the_bus(loop: Loop) -> None:
    with open_plugged(loop, {"keeper.py": KEEPER}) as plugged, ExitStack() as opened:
        ask(joined(plugged, "tg:1", opened), "keeper:forward", messageId="m1")
        assert plugged.daemon.stop() == 0
        settings = {"plugins.folders": [str(plugged.plugins)], "plugins.disabled": ["bub"]}
        plugged.daemon.start_again(loop, settings)
        found = ask(joined(plugged, "tg:2", opened), "keeper:look")
        assert (found["waiting"], found["first"]) == (["lazy:1"], "tg:1 m1 words")


def test_an_address_that_is_held_gets_nothing_until_it_is_let_go(loop: Loop) -> None:
    with open_plugged(loop, {"keeper.py": KEEPER}) as plugged, ExitStack() as opened:
        chat = joined(plugged, "tg:1", opened)
        lazy = joined(plugged, "lazy:1", opened)
        assert types(lazy, 1) == ["first"]
        ask(chat, "keeper:hold")
        assert ask(chat, "keeper:forward") == KEPT
        lazy.expect_nothing()
        ask(chat, "keeper:let-go")
        assert types(lazy, 1) == ["words"]
        ask(chat, "keeper:hold")
        assert ask(chat, "keeper:forward") == KEPT
        plugged.write("keeper.py", EMPTY.format(name="keeper", about="Keeps nothing"))
        plugged.reload()
        assert types(lazy, 1) == ["words"]  # whoever held it is gone


def test_mail_that_is_buried_is_told_to_senders_that_wait_or_else_to_the_plugin(
    loop: Loop,
) -> None:
    with open_plugged(loop, {"keeper.py": KEEPER}) as plugged, ExitStack() as opened:
        chat = joined(plugged, "tg:1", opened)
        ask(chat, "keeper:forward", messageId="m1")
        waiting = chat.send_message("lazy:1", {"type": "later"}, messageId="m2")
        assert ask(chat, "keeper:bury") == {"count": 2}
        [ack] = chat.answer_to(waiting)["result"]["acks"]
        assert (ack["success"], ack["message"]) == (False, "nobody will come")
        assert ask(chat, "keeper:look") == NOTHING
        assert diary(plugged)[2:] == ["dead lazy:1 m1 nobody will come"]


def test_a_fault_in_a_rule_about_mail_is_the_plugins_alone(loop: Loop) -> None:
    with open_plugged(loop, {"keeper.py": KEEPER}) as plugged, ExitStack() as opened:
        chat = joined(plugged, "tg:1", opened)
        answer = chat.answer_to(chat.send_message("lazy:fault"))
        assert answer["result"]["undelivered"] == "no route"
        found = plugged.listed()["keeper"]
        assert found["lastFault"] == "keeps_mail: RuntimeError: no luck"
        assert found["hooks"] == ["on_peer_joined", "on_mail", "on_dead_letter"]
        plugged.daemon.is_blamed = True


def test_a_plugin_that_is_stopped_keeps_no_more_mail(loop: Loop) -> None:
    with open_plugged(loop, {"keeper.py": KEEPER}) as plugged, ExitStack() as opened:
        chat = joined(plugged, "tg:1", opened)
        (plugged.plugins / "keeper.py").unlink()
        plugged.reload()
        answer = chat.answer_to(chat.send_message("lazy:7"))
        assert answer["result"]["undelivered"] == "no route"
