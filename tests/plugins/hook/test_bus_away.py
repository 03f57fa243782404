"""The bus is away: callers learn it at once, and lose nothing."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path

import anyio
import httpx
import pytest
from starlette.applications import Starlette

from busd.gateway import Site
from busd_plugins.hook import exchange, pages
from busd_plugins.hook.settings import HookTable
from tests.daemons import PATIENCE_SECONDS, open_daemon
from tests.plugins.hook.place import TOKEN, bearer, code_of, write_secrets

pytestmark = pytest.mark.anyio


@asynccontextmanager
async def open_app(folder: Path) -> AsyncIterator[httpx.AsyncClient]:
    """Serve hooks without a gateway."""
    files = write_secrets(folder)
    table = HookTable(secrets=files["secrets"], tokens=files["tokens"])
    site = Site(settings=None, state=folder, is_stopping=lambda: False)
    async with pages.open_hooks(table, site) as routes:
        transport = httpx.ASGITransport(Starlette(routes=routes))
        async with httpx.AsyncClient(
            transport=transport, base_url="http://gateway", headers=bearer(TOKEN)
        ) as web:
            yield web


async def test_a_bus_that_is_away_is_said_and_the_same_key_is_taken_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bus"
    folder.mkdir()
    monkeypatch.setenv("BUSD_ADDRESS", f"unix:{folder / 'bus.sock'}")
    monkeypatch.setattr(exchange, "ACCEPT_SECONDS", 0.3)
    body, key = {"text": "patience"}, {"Idempotency-Key": "k"}
    async with open_app(tmp_path) as web:
        for _ in range(2):
            response = await web.post("/hook/ci", json=body, headers=key)
            assert code_of(response) == (503, "bus_unavailable")
            assert response.headers["Retry-After"] == "5"
        request_id = response.json()["error"]["id"]
        assert (await web.get(f"/hook/ci/{request_id}")).json()["state"] == "waiting"
        with open_daemon("uvloop", folder=folder):
            with anyio.fail_after(PATIENCE_SECONDS):
                while (
                    response := await web.post("/hook/ci?wait=20", json=body, headers=key)
                ).status_code == 503:
                    await anyio.sleep(0.1)
            assert (response.status_code, response.json()["id"]) == (200, request_id)
            assert response.json()["text"]
            assert len(response.json()["replies"]) == 1


async def test_a_message_that_the_bus_refuses_stays_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bus"
    folder.mkdir()
    monkeypatch.setenv("BUSD_ADDRESS", f"unix:{folder / 'bus.sock'}")
    with open_daemon("uvloop", {"agents.channel_types": ["web"]}, folder=folder):
        async with open_app(tmp_path) as web:
            for _ in range(2):
                response = await web.post(
                    "/hook/ci?wait=20", json={"text": "hi"}, headers={"Idempotency-Key": "k"}
                )
                assert code_of(response) == (422, "refused"), response.text
            assert "agents.channel_types" in response.json()["error"]["message"]


async def test_a_message_larger_than_the_bus_allows_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "bus"
    folder.mkdir()
    monkeypatch.setenv("BUSD_ADDRESS", f"unix:{folder / 'bus.sock'}")
    with open_daemon("uvloop", folder=folder):
        async with open_app(tmp_path) as web:
            body = {"text": "é" * 400_000, "metadata": {"x": "y" * 300_000}}
            response = await web.post("/hook/ci", json=body)
            assert code_of(response) == (413, "too_large"), response.text


async def test_a_store_that_cannot_be_written_is_said_and_nothing_is_sent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another program locks the file; a full disk looks the same to callers."""
    monkeypatch.setenv("BUSD_ADDRESS", f"unix:{tmp_path / 'bus.sock'}")
    async with open_app(tmp_path) as web:
        with closing(sqlite3.connect(tmp_path / pages.FOLDER / "hook.db")) as other:
            other.execute("BEGIN EXCLUSIVE")
            response = await web.post("/hook/ci", json={"text": "hi"})
            assert code_of(response) == (503, "cannot_store")
            assert response.headers["Retry-After"] == "5"
            other.rollback()
        assert code_of(await web.get("/hook/ci/nothing")) == (404, "unknown_message")
