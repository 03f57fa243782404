"""Entries for nobody in particular, history, read receipts; tasks and shared data."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from msgspec import Raw

from busd.gateway.conversation import Author, Entry, Kind, Task
from busd.gateway.effects import (
    Amend,
    AskHistory,
    AskReaders,
    ChangeTask,
    MarkRead,
    Post,
    Request,
    Say,
    ShareContext,
)
from busd.gateway.events import (
    Amended,
    ContextShared,
    History,
    Posted,
    Read,
    Readers,
    Said,
    TaskChanged,
)
from busd.gateway.settings import GatewayTable
from busd.gateway.store_limits import StoreLimits
from busd.testing.gateway import GatewayKit, open_gateway
from tests.gateway.hub.probe import LOBBY, Other, ProbeClient, join

pytestmark = pytest.mark.anyio


async def pair(kit: GatewayKit) -> tuple[ProbeClient, ProbeClient]:
    """Return two clients of one conversation."""
    ann, eve = await join(kit), await join(kit, dialect=Other)
    await ann.enter(author=Author("ann"))
    await eve.enter(author=Author("eve"))
    ann.take()
    eve.take()
    return ann, eve


async def test_a_post_is_kept_and_shown_and_no_agent_gets_it(kit: GatewayKit) -> None:
    bob = kit.agent("bob")
    ann, eve = await pair(kit)
    await ann.must(Post(LOBBY, Entry(text="fyi", id="p1", type="poll", original=Raw(b'{"a":1}'))))
    assert (await ann.must(Post(LOBBY, Entry(text="fyi", id="p1")))).is_duplicate
    await kit.settle()
    assert [each.is_own for each in (*ann.all(Posted), *eve.all(Posted))] == [True, False]
    entry = eve.last(Posted).entry
    assert (entry.kind, entry.type, entry.dialect) == (Kind.POST, "poll", "probe")
    assert entry.original == Raw(b'{"a":1}')
    assert not bob.peer.inbox


async def test_words_for_nobody_begin_no_turn(kit: GatewayKit) -> None:
    bob = kit.agent("bob")
    ann, eve = await pair(kit)
    await ann.must(Say(LOBBY, Entry(text="just us"), agents=None))
    await kit.settle()
    assert eve.seen() == ["Said"]
    assert not bob.peer.inbox


async def test_an_amended_entry_keeps_who_said_it_and_when(kit: GatewayKit) -> None:
    ann, eve = await pair(kit)
    await ann.must(Post(LOBBY, Entry(text="old", id="p1", timestamp="2024-01-01T00:00:00Z")))
    changed = Entry(text="new", id="p1", author=Author("eve"), kind=Kind.REPLY)
    await eve.must(Amend(LOBBY, changed))
    entry = ann.last(Amended).entry
    assert (entry.text, entry.author.id, entry.number) == ("new", "ann", 1)
    assert (entry.kind, entry.timestamp) == (Kind.POST, "2024-01-01T00:00:00Z")
    assert (await eve.refused(Amend(LOBBY, Entry(text="x", id="none")))).rule == "invalid"


async def test_history_is_paged_backwards(kit: GatewayKit) -> None:
    ann, _ = await pair(kit)
    for number in range(5):
        await ann.must(Post(LOBBY, Entry(text=str(number))))
    await ann.must(AskHistory(LOBBY, last=2))
    page = ann.last(History)
    assert ([each.text for each in page.entries], page.has_more) == (["3", "4"], True)
    await ann.must(AskHistory(LOBBY, before=page.entries[0].number, last=9))
    page = ann.last(History)
    assert ([each.text for each in page.entries], page.has_more) == (["0", "1", "2"], False)
    assert ann.seen()[-2:] == ["History", "Done"]


async def test_read_receipts_are_kept_and_shown_to_the_others_once(kit: GatewayKit) -> None:
    ann, eve = await pair(kit)
    await ann.must(Post(LOBBY, Entry(text="fyi", id="p1")))
    for _ in range(2):
        await eve.must(MarkRead(LOBBY, ("p1", "unknown"), Author("eve")))
    assert [each.ids for each in ann.all(Read)] == [("p1",)]
    assert not eve.all(Read)
    await ann.must(AskReaders(LOBBY, ("p1",)))
    assert list(ann.last(Readers).readers["p1"]) == ["eve"]


async def test_a_task_is_changed_by_clients_and_agents(kit: GatewayKit) -> None:
    bob = kit.agent("bob")
    ann, eve = await pair(kit)
    await ann.say("hello")
    await kit.settle()
    chat = bob.words().chat
    task = Task(task_id="t1", title="Paint", assignees=(Author("bob", "agent"), Author("ann")))
    await ann.must(ChangeTask(LOBBY, task, "created"))
    await kit.settle()
    told = bob.event()
    assert (told["event"], told["task_id"], told["title"]) == ("task.created", "t1", "Paint")
    bob.tell(chat, "task.updated", {"task_id": "t1", "status": "done", "progress": 100})
    await kit.settle()
    changed = eve.all(TaskChanged)
    assert [(each.action, each.by.id, each.dialect) for each in changed] == [
        ("created", "ann", "probe"),
        ("updated", "bob", ""),
    ]
    assert (changed[1].task.title, changed[1].task.status) == ("Paint", "done")
    assert [each.by.id for each in changed[1].task.history] == ["ann", "bob"]
    assert [each.is_own for each in ann.all(TaskChanged)] == [True, False]
    entered = await (await join(kit)).enter()
    assert [each.task_id for each in entered.tasks] == ["t1"]


async def test_two_votes_at_the_same_moment_both_count(kit: GatewayKit) -> None:
    import anyio

    ann, eve = await pair(kit)

    async def vote(client: ProbeClient, name: str) -> None:
        data = Raw(msgspec.json.encode({"votes": {name: 1}}))
        await client.must(ChangeTask(LOBBY, Task(task_id="poll", data=data), agents=None))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(vote, ann, "ann")
        tasks.start_soon(vote, eve, "eve")
    data = ann.all(TaskChanged)[-1].task.data
    assert msgspec.json.decode(bytes(data or b"")) == {"votes": {"ann": 1, "eve": 1}}


async def test_a_task_for_nobody_is_told_to_nobody(kit: GatewayKit) -> None:
    bob = kit.agent("bob")
    ann, _ = await pair(kit)
    await ann.must(ChangeTask(LOBBY, Task(task_id="poll"), "created", agents=None))
    await kit.settle()
    assert not bob.peer.inbox


async def test_shared_data_reach_all_clients_and_the_agents(kit: GatewayKit) -> None:
    bob, joe = kit.agent("bob"), kit.agent("joe")
    ann, eve = await pair(kit)
    data = Raw(b'{"city":"Bern"}')
    await ann.must(ShareContext(LOBBY, "c1", data))
    await ann.must(ShareContext(LOBBY, "c2", data, agents=("joe",)))
    await kit.settle()
    assert [each.context_id for each in eve.all(ContextShared)] == ["c1", "c2"]
    told = bob.event()
    assert (told["event"], told["context_data"]) == ("context.updated", {"city": "Bern"})
    assert joe.event()["context_id"] == "c2"
    joe.tell(f"probe:{told['chat_id']}", "context.updated", {"context_id": 3, "context_data": []})
    await kit.settle()
    shared = ann.last(ContextShared)
    assert (shared.context_id, bytes(shared.data), shared.by.id) == ("3", b"[]", "joe")


async def test_a_task_of_an_agent_that_does_not_fit_is_refused(kit: GatewayKit) -> None:
    bob = kit.agent("bob")
    ann, _ = await pair(kit)
    await ann.say("hello")
    await kit.settle()
    chat = bob.words().chat
    for data in ({"task_id": ""}, {"task_id": "t", "progress": 101}, {}):
        content = {"event": "task.updated", "data": data}
        sent = bob.peer.send(f"events:{chat}", {"type": "agent_event", "content": content})
        await kit.settle()
        assert not sent.result.acks[0].success
    assert not ann.all(TaskChanged)


LONG = "x" * 257


@pytest.mark.parametrize(
    ("effect", "rule", "detail"),
    [
        (Post(LOBBY, Entry(id=LONG)), "invalid", "entry.id"),
        (Post(LOBBY, Entry(id="a\nb")), "invalid", "entry.id"),
        (Post(LOBBY, Entry(author=Author(LONG))), "invalid", "author.id"),
        (Post(LOBBY, Entry(author=Author("a", name=LONG))), "invalid", "author.name"),
        (Say(LOBBY, Entry(), agents=("two words",)), "agent", "two words"),
        (Say(LOBBY, Entry(), agents=("wild*",)), "agent", "wild*"),
        (Say(LOBBY, Entry(), agents=("",)), "agent", ""),
        (Say(LOBBY, Entry(), agents=("system",)), "agent", "system"),
        (Say(LOBBY, Entry(), agents=tuple(map(str, range(33)))), "limit", ""),
        (ChangeTask(LOBBY, Task(task_id="")), "invalid", "task_id"),
        (ChangeTask(LOBBY, Task(task_id="t"), "burnt"), "invalid", "action"),
        (ChangeTask(LOBBY, Task(task_id="t", progress=-1)), "invalid", "progress"),
        (ShareContext(LOBBY, "", Raw(b"{}")), "invalid", "context_id"),
        (ShareContext(LOBBY, "c", Raw(b'"%b"' % (b"x" * 300_000))), "limit", "data"),
        (MarkRead(LOBBY, ("id",) * 1_001, Author("")), "limit", "ids"),
        (AskReaders(LOBBY, ("id",) * 1_001), "limit", "ids"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, msgspec.Struct) else str(value)[:9],
)
async def test_what_does_not_fit_is_refused_with_the_member(
    kit: GatewayKit, effect: Request, rule: str, detail: str
) -> None:
    ann, eve = await pair(kit)
    refused = await ann.refused(effect)
    assert (refused.rule, refused.detail) == (rule, detail)
    assert refused.request is effect
    assert eve.events == []


@pytest.mark.parametrize(
    ("limit", "effects"),
    [
        ("open_turns", [Say(LOBBY, Entry())]),
        ("tasks", [ChangeTask(LOBBY, Task(task_id=str(n))) for n in range(3)]),
        ("members", []),
    ],
)
async def test_a_limit_that_is_reached_is_named(limit: str, effects: list[Any]) -> None:
    limits = StoreLimits(**{limit: 2})
    async with open_gateway(GatewayTable(agent="agent:bob", store=limits)) as kit:
        kit.agent("bob")
        ann = await join(kit)
        await ann.enter(is_room=True)
        from busd.gateway.effects import Invite

        wanted = effects or [Invite(LOBBY, str(n)) for n in range(3)]
        for effect in (wanted * 3)[:2] if limit != "members" else wanted[:1]:
            await ann.must(effect)
        refused = await ann.refused(wanted[-1])
        assert (refused.rule, refused.detail) == ("limit", limit)
        assert len(ann.all(Said)) == (2 if limit == "open_turns" else 0)
