"""How many conversations a user may begin: each of them gets an agent, which is a process."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from busd.gateway.beginnings import Beginnings
from busd.gateway.conversation import Entry
from busd.gateway.effects import Say
from busd.gateway.events import Done, Refused
from busd.gateway.refusal import Refusal
from busd.gateway.settings import ClientLimits, GatewayTable
from busd.testing.bus import FakeClock
from busd.testing.gateway import GatewayKit, open_gateway
from tests.gateway.hub.probe import ProbeClient, join

pytestmark = pytest.mark.anyio
LIMITS = ClientLimits(conversations_at_once=2, conversations_per_minute=6)


@pytest.fixture
async def kit(anyio_backend: str) -> AsyncIterator[GatewayKit]:
    """A gateway whose words go to the agent that each conversation gets."""
    async with open_gateway(GatewayTable(limits=LIMITS)) as opened:
        yield opened


async def begin(client: ProbeClient, name: str) -> Done | Refused:
    """Say something in a conversation, and return what came of it."""
    await client.enter(name)
    return await client.do(Say(name, Entry(text="hello")))


async def test_a_user_begins_only_so_many_conversations_at_once(kit: GatewayKit) -> None:
    ann, dora = await join(kit, user="ann"), await join(kit, user="dora")
    for name in ("one", "two"):
        assert isinstance(await begin(ann, name), Done)
    refused = await begin(ann, "three")
    assert isinstance(refused, Refused)
    assert (refused.rule, refused.detail) == ("limit", "conversations_at_once")
    assert refused.reason == "ann has begun 2 conversations in a short time; try again later"
    assert isinstance(await begin(ann, "one"), Done), "its agent is there already"
    assert isinstance(await begin(dora, "three"), Done), "others are not concerned"


async def test_the_owner_begins_as_many_as_needed(kit: GatewayKit) -> None:
    owner = await join(kit)
    for name in ("one", "two", "three", "four"):
        assert isinstance(await begin(owner, name), Done)


async def test_words_for_a_named_agent_begin_nothing(anyio_backend: str) -> None:
    async with open_gateway(GatewayTable(agent="agent:bob", limits=LIMITS)) as kit:
        ann = await join(kit, user="ann")
        for name in ("one", "two", "three"):
            assert isinstance(await begin(ann, name), Done)


def test_as_time_goes_by_more_may_begin() -> None:
    clock = FakeClock(0.0)
    beginnings = Beginnings(LIMITS, clock)
    for name in ("one", "two"):
        beginnings.charge("ann", name)
    with pytest.raises(Refusal) as refused:
        beginnings.charge("ann", "three")
    assert refused.value.retry_seconds == 10
    clock.now += 10
    beginnings.charge("ann", "three")
    clock.now += 601  # the agents may be gone by now
    for name in ("one", "two"):
        beginnings.charge("ann", name)
    with pytest.raises(Refusal):
        beginnings.charge("ann", "three")
