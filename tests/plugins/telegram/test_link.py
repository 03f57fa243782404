"""The link to Telegram: what is reported while it is broken, and that it goes on by itself."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from busd import Bridge, ConfigError
from busd.bridge import BridgeState
from busd_plugins.telegram.faults import Fault
from busd_plugins.telegram.outage import Timing
from busd_plugins.telegram.telegram import Telegram
from tests.plugins.telegram.chats import Trouble, failing
from tests.plugins.telegram.rig import Rig, logged, poll_until

pytestmark = pytest.mark.anyio
CONFLICT = "Conflict: terminated by other getUpdates request"


async def reports(bridge: Bridge, state: BridgeState) -> None:
    await poll_until(lambda: bridge.status.state == state)


@pytest.mark.parametrize(
    ("trouble", "state", "detail"),
    [
        (failing(401, "Unauthorized"), "unauthorized", "Telegram does not accept the token"),
        (failing(404, "Not Found"), "unauthorized", "Telegram does not accept the token"),
        (
            failing(409, CONFLICT),
            "conflict",
            f"another program receives the updates of this bot: {CONFLICT}",
        ),
        (failing(500, "Internal Server Error"), "waiting", "Internal Server Error"),
        (Trouble(way="half"), "waiting", "the connection to Telegram broke: ClientPayloadError"),
        (
            Trouble(way="drop"),
            "waiting",
            "the connection to Telegram broke: ServerDisconnectedError",
        ),
        (Trouble(way="html"), "waiting", "HTTP status 502"),
        (Trouble(way="deep"), "waiting", "the response is not complete"),
    ],
)
async def test_a_poll_that_fails_is_reported_and_tried_again(
    rig: Rig,
    trouble: Trouble,
    state: BridgeState,
    detail: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO")
    rig.server.says("one")
    rig.server.trouble("getUpdates", *[trouble] * 3)
    async with rig.both() as (bridge, agent):
        await agent.heard(1)
        rig.server.says("two")
        await agent.heard(2)
        await reports(bridge, "connected")
    assert f"{rig.name} is {state}: {detail}" in logged(caplog.text, rig.server)
    assert f"{rig.name} is connected" in caplog.text


async def test_telegram_may_ask_for_fewer_polls(rig: Rig) -> None:
    rig.server.says("one")
    rig.server.trouble("getUpdates", failing(429, "Too Many Requests", retry_after=1))
    async with rig.both() as (_, agent):
        begun = anyio.current_time()
        await agent.heard(1)
        assert anyio.current_time() - begun >= 0.9


async def test_a_token_that_is_revoked_stops_nothing_but_telegram(rig: Rig) -> None:
    """The operator renews it, and the bridge is restarted; replies wait at the bus."""
    async with rig.both() as (bridge, agent):
        await reports(bridge, "connected")
        token, rig.server.token = rig.server.token, "4242:other"
        rig.server.says("one")
        await reports(bridge, "unauthorized")
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(agent.reply, "hi")
            await poll_until(lambda: rig.server.calls("sendMessage"))
            assert bridge.status.refused == 0
            tasks.cancel_scope.cancel()
        rig.server.token = token
        await agent.heard(1)
        await reports(bridge, "connected")


async def test_a_second_poller_is_reported_and_not_fought_over(rig: Rig) -> None:
    async with rig.both() as (bridge, agent):
        await reports(bridge, "connected")
        rig.server.trouble("getUpdates", *[failing(409, CONFLICT)] * 1_000)
        rig.server.says("one")
        await reports(bridge, "conflict")
        rig.server.heal()
        await agent.heard(1)
        await reports(bridge, "connected")


def test_the_pauses_in_a_conflict_grow_and_other_faults_are_tried_again_sooner() -> None:
    """Each poll of one program ends that of the other."""
    timing, conflict = Timing(), Fault("conflict", CONFLICT)
    assert [timing.pause(conflict, times) for times in (0, 1, 3, 9)] == [30, 60, 240, 240]
    assert timing.pause(Fault("unauthorized", ""), 0) == 60
    unreachable = Fault("unreachable", "")
    assert [timing.pause(unreachable, times) for times in (0, 1, 9)] == [1, 2, 60]


async def test_a_server_that_is_away_is_waited_for(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    nowhere = "http://127.0.0.1:1"
    async with rig.both(api_base=nowhere) as (bridge, _):
        await poll_until(lambda: bridge.status.detail == "Telegram cannot be reached")
        assert bridge.status.state == "waiting"
    logged(caplog.text, rig.server)


async def test_a_webhook_is_removed_and_what_waits_there_is_kept(rig: Rig) -> None:
    rig.server.webhook = {"url": "https://busd.example"}
    rig.server.says("one")
    async with rig.both() as (_, agent):
        await agent.heard(1)
    assert rig.server.webhook == {}


async def test_a_second_process_with_the_same_token_is_refused(rig: Rig, tmp_path: Path) -> None:
    async with rig.both():
        other = Bridge("other-bridge", rig.prefix, state=tmp_path / "other", address=rig.address)
        with pytest.raises(ConfigError, match=r"process \d+ uses this TELEGRAM_TOKEN") as refused:
            await Telegram(other, rig.table()).serve()
    assert rig.server.token not in str(refused.value)


async def test_what_is_no_token_is_refused_without_showing_it(rig: Rig, tmp_path: Path) -> None:
    rig.token_file.write_text("my secret")
    bridge = Bridge("other-bridge", rig.prefix, state=tmp_path / "other", address=rig.address)
    with pytest.raises(ConfigError) as refused:
        await Telegram(bridge, rig.table()).serve()
    assert str(refused.value) == (
        "TELEGRAM_TOKEN is not the token of a bot: it is like 123456:ABC…"
    )
    assert refused.value.__context__ is None
