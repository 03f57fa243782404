"""The webhook mode: updates come over the bus, from the gateway."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import anyio
import pytest

from busd import Client, Receipt, Refuse
from tests.bridge.toy import refused
from tests.plugins.telegram.rig import Rig, logged, poll_until

pytestmark = pytest.mark.anyio
URL = "https://busd.example/telegram/1"


@pytest.fixture
def webhook(tmp_path: Path) -> dict[str, Any]:
    """The settings of the mode."""
    secret = tmp_path / "webhook.secret"
    secret.write_text("s3cret")
    secret.chmod(0o600)
    return {"mode": "webhook", "webhook_url": URL, "webhook_secret_file": str(secret)}


def update(number: int, text: str, chat: int = 7) -> dict[str, Any]:
    user = {"id": 7, "is_bot": False, "first_name": "Ann"}
    where = {"id": chat, "type": "private", "first_name": "Ann"}
    message = {"message_id": number, "date": 1, "chat": where, "from": user, "text": text}
    return {"update_id": number, "message": message}


async def forward(rig: Rig, gateway: Client, said: Any) -> Receipt:
    payload = {"type": "external_update", "content": {"update": said}}
    return await gateway.send(rig.name, payload)


async def test_updates_from_the_gateway_are_pushed_in_order_and_once(
    rig: Rig, webhook: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    async with (
        rig.both(**webhook) as (bridge, agent),
        Client(f"gw:{rig.name}", address=rig.address) as gateway,
    ):
        await poll_until(lambda: bridge.status.state == "connected")
        assert rig.server.webhook == {"url": URL, "secret": "s3cret"}
        agent.refusals = [Refuse("later", retry_seconds=0)]
        async with anyio.create_task_group() as tasks:
            for number in (1, 2, 3):
                tasks.start_soon(forward, rig, gateway, update(number, str(number)))
                await anyio.lowlevel.checkpoint()
        [ack] = (await forward(rig, gateway, update(1, "1"))).acks
        assert ack.success
        await agent.heard(3)
        assert agent.texts() == ["1", "2", "3"]
        assert refused(await forward(rig, gateway, {"odd": 1})) == (
            "external_update: content.update has no update_id",
            False,
        )
    assert "s3cret" not in logged(caplog.text, rig.server)
    assert rig.server.calls("getUpdates") == []


async def test_a_webhook_that_telegram_cannot_reach_or_somebody_changes_is_reported(
    rig: Rig, webhook: dict[str, Any]
) -> None:
    async with rig.both(**webhook) as (bridge, _):
        await poll_until(lambda: bridge.status.state == "connected")
        failed = {"last_error_message": "Connection refused", "pending_update_count": 3}
        rig.server.webhook |= failed
        words = "Telegram cannot deliver 3 updates: Connection refused"
        await poll_until(lambda: bridge.status.detail == words)
        rig.server.webhook = {"url": "https://elsewhere.example"}
        await poll_until(lambda: bridge.status.state == "conflict")


async def test_a_bridge_that_polls_takes_no_updates_from_the_bus(rig: Rig) -> None:
    async with rig.both(), Client(f"gw:{rig.name}", address=rig.address) as gateway:
        words, is_temporary = refused(await forward(rig, gateway, update(1, "hi")))
        assert (words, is_temporary) == ("the bridge takes no updates now", True)
