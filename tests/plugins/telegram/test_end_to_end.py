"""From an update to the reply: bus, bridge and worker as processes of their own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from busd import SyncClient
from tests.daemons import PATIENCE_SECONDS, open_daemon
from tests.plugins.gateway.asking import open_gateway_of
from tests.plugins.telegram.kills import rehearse, settings_of
from tests.plugins.telegram.server import Telegram


def run_busd(address: str, *words: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "busd", *words, "--address", address],
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
        check=True,
    )
    return done.stdout


def traced(address: str, *words: str) -> str:
    """Return what `busd trace` shows of the messages that `busd log` lists."""
    lines = run_busd(address, "log", "--json", *words).splitlines()
    ids = dict.fromkeys(json.loads(line)["messageId"] for line in lines)
    return "\n".join(run_busd(address, "trace", each) for each in ids)


def test_a_users_message_is_answered_by_a_worker_and_the_trace_shows_its_path(
    server: Telegram, tmp_path: Path
) -> None:
    with open_daemon("uvloop", settings_of(server, tmp_path), log_level="info") as daemon:
        server.says("hello")
        server.until(lambda: server.texts() == ["hello"])
        address = f"unix:{daemon.path}"
        with SyncClient("test:e2e", address=address) as bus:
            [bridge] = bus.call("bridges.list")["bridges"]
        assert (bridge["state"], bridge["status"]["state"]) == ("running", "connected")
        command = Path(f"/proc/{bridge['pid']}/cmdline").read_text()
        environment = Path(f"/proc/{bridge['pid']}/environ").read_text()
        assert server.token not in command + environment + daemon.log()
        log = run_busd(address, "bridges", "logs", "telegram")
        assert "telegram-bridge is connected" in log
        assert server.token not in log
        server.until(lambda: "tg:7 → agent:worker-" in traced(address, "--from", "tg:7"))
        assert "tg:7 → system:route  ok" in traced(address, "--from", "tg:7")
        # It is acked, and written to the activity log, after the user has seen it.
        server.until(lambda: "→ tg:7  ok" in traced(address, "--from", "tg:7"))
        path = traced(address, "--from", "tg:7")
        places = ("tg:7 → system:route", "tg:7 → agent:worker-", "→ tg:7", "telegram-bridge")
        found = [path.index(each) for each in places]
        assert found == sorted(found)


def test_updates_that_are_posted_to_the_gateway_are_answered_once(
    server: Telegram, tmp_path: Path
) -> None:
    secret = tmp_path / "secret"
    secret.write_text("s3cret")
    secret.chmod(0o600)
    settings = settings_of(server, tmp_path) | {
        "bridges.telegram.mode": "webhook",
        "bridges.telegram.webhook_url": "https://busd.example/telegram/abc",
        "bridges.telegram.webhook_secret_file": str(secret),
        "gateway.enabled": True,
        "gateway.listen": "127.0.0.1:0",
    }
    with open_daemon("uvloop", settings) as daemon, open_gateway_of(daemon) as gateway:
        url = "http://{}:{}/telegram/abc".format(*gateway.place())
        server.until(lambda: server.webhook)

        def post(number: int, shown: str = server.webhook["secret"]) -> int:
            chat = {"id": 7, "type": "private", "first_name": "Ann"}
            user = {"id": 7, "is_bot": False, "first_name": "Ann"}
            about = {"date": 1, "chat": chat, "from": user, "text": f"hello {number}"}
            update = {"update_id": number, "message": {"message_id": number, **about}}
            headers = {"X-Telegram-Bot-Api-Secret-Token": shown}
            return httpx.post(url, json=update, headers=headers, timeout=30).status_code

        assert post(1, "another") == 401
        assert [post(number) for number in (2, 2, 3)] == [200] * 3
        server.until(lambda: "hello 3" in server.texts())
        assert server.texts() == ["hello 2", "hello 3"]


def test_two_bots_with_prefixes_of_their_own_answer_the_same_user_once_each(
    tmp_path: Path,
) -> None:
    with Telegram().start() as one, Telegram().start() as two:
        settings = settings_of(one, tmp_path)
        own = tmp_path / "two"
        own.mkdir()
        (own / "token").write_text(two.token)
        (own / "token").chmod(0o600)
        (own / "busd.toml").write_text(
            f'state = "{own}"\n[bridges.telegram]\nname = "two-bridge"\nprefix = "two"\n'
            f'token_file = "{own}/token"\napi_base = "{two.url}"\n'
        )
        command = [sys.executable, "-m", "busd", "bridge", "telegram"]
        settings |= {
            "bridges.programs.two.command": [*command, "--config", str(own / "busd.toml")],
            "agents.channel_types": ["telegram", "two"],
        }
        with open_daemon("uvloop", settings) as daemon:
            for server in (one, two):
                server.add_chat(7)
            one.says("to one")
            two.says("to two")
            one.until(lambda: one.texts() == ["to one"])
            two.until(lambda: two.texts() == ["to two"])
            address = f"unix:{daemon.path}"
            with SyncClient("test:e2e", address=address) as bus:
                found = {each["peer"]: each for each in bus.call("bridges.list")["bridges"]}
            assert found["two-bridge"]["status"]["state"] == "connected"
            one.until(lambda: "→ tg:7  ok" in traced(address, "--to", "tg:7"))
            two.until(lambda: "→ two:7  ok" in traced(address, "--to", "two:7"))
            trace = traced(address, "--to", "two:7")
            assert "two-bridge" in trace
            assert "telegram-bridge" not in trace
        assert [one.texts(), two.texts()] == [["to one"], ["to two"]]


def test_kills_of_bridge_bus_and_worker_lose_nothing_and_double_nothing_without_a_mark(
    tmp_path: Path,
) -> None:
    (tmp_path / "bus").mkdir()
    killed, _ = rehearse(
        tmp_path, chats=6, messages=30, kills=6, patience_seconds=4 * PATIENCE_SECONDS
    )
    assert killed == {"bridge": 2, "bus": 2, "worker": 2}


@pytest.mark.parametrize("module", ["aiogram", "aiohttp", "pydantic"])
def test_the_bus_does_not_import_what_only_the_bridge_needs(module: str) -> None:
    code = (
        "import sys; from busd.plugin.loader import bundled_folder, use_folders\n"
        "use_folders([bundled_folder()]); import busd_plugins.telegram\n"
        "import busd_plugins.telegram.settings, busd_plugins.bridges\n"
        f"sys.exit({module!r} in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=PATIENCE_SECONDS)
