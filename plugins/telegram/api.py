"""The Bot API: aiogram's bot with a session that reads bounded responses and hides the token."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import msgspec
from aiogram import Bot
from aiogram.client.session.aiohttp import AiohttpSession
from aiogram.client.telegram import TelegramAPIServer
from aiogram.methods import GetFile, TelegramMethod
from aiogram.utils.token import TokenValidationError

from busd import ConfigError
from busd.bridge import Secret
from busd_plugins.telegram.faults import Fault, Response, fault_of

REQUEST_SECONDS = 30.0
_DOWNLOAD_SECONDS = 60.0
_MAX_RESPONSE_BYTES = 32 * 1024 * 1024  # a hundred updates have far less
_CHUNK_BYTES = 64 * 1024
_decode = msgspec.json.Decoder(Response).decode


class Session(AiohttpSession):
    """Requests of aiogram; results are left as JSON.

    aiogram would validate them, and take a message that was posted for one that was not if its
    description has something new.
    """

    async def make_request(
        self, bot: Bot, method: TelegramMethod[Any], timeout: float | None = None
    ) -> Any:
        """Return the result of a method; raise Fault, or what aiohttp raises."""
        session = await self.create_session()
        url = self.api.api_url(token=bot.token, method=method.__api_method__)
        form = self.build_form_data(bot=bot, method=method)
        limit = aiohttp.ClientTimeout(total=timeout or REQUEST_SECONDS, sock_connect=10)
        async with session.post(url, data=form, timeout=limit) as answer:
            raw = await _read_limited(answer, _MAX_RESPONSE_BYTES)
            status = answer.status
        if raw is None:
            raise Fault("unknown", "the response is too large")
        try:
            response = _decode(raw)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            response = None
        if response is not None and response.ok and status < 300:
            return response.result
        raise fault_of(status, response)

    async def download(self, url: str, limit: int) -> bytes | None:
        """Return the content of a file; None if it is larger than `limit`."""
        session = await self.create_session()
        seconds = aiohttp.ClientTimeout(total=_DOWNLOAD_SECONDS, sock_connect=10)
        async with session.get(url, timeout=seconds) as answer:
            if answer.status != 200:
                raise fault_of(answer.status, None)
            return await _read_limited(answer, limit)


async def _read_limited(answer: aiohttp.ClientResponse, limit: int) -> bytes | None:
    content = bytearray()
    async for chunk in answer.content.iter_chunked(_CHUNK_BYTES):
        content += chunk
        if len(content) > limit:
            return None
    return bytes(content)


class Api:
    """What the bridge asks of Telegram."""

    def __init__(self, bot: Bot, session: Session) -> None:
        self.bot = bot
        self._session = session

    async def call(self, method: TelegramMethod[Any], seconds: float = REQUEST_SECONDS) -> Any:
        """Return the result of a method as JSON; raise Fault."""
        return await self._guard(self._session.make_request(self.bot, method, seconds))

    async def download(self, file_id: str, limit: int) -> bytes | None:
        """Return a file; None if it is larger than `limit`; raise Fault."""
        try:
            found = await self.call(GetFile(file_id=file_id))
        except Fault as fault:
            if fault.says("file is too big"):
                return None
            raise
        path = found.get("file_path") or ""
        url = self._session.api.file_url(self.bot.token, path)
        content: bytes | None = await self._guard(self._session.download(url, limit))
        return content

    async def _guard(self, request: Any) -> Any:
        """Await a request; raise Fault for all that can go wrong on the way.

        The exceptions of aiohttp contain the address, and with it the token: they end here, and
        the fault is raised outside, so that they are not its context either.
        """
        try:
            return await request
        except Fault as problem:
            fault = problem
            fault.description = self._hidden(fault.description)
            fault.args = (fault.description,)
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError):
            fault = Fault("unreachable", "Telegram cannot be reached")
        except TimeoutError:
            fault = Fault("unknown", "Telegram has not answered in time")
        except (aiohttp.ClientError, OSError) as problem:
            fault = Fault("unknown", f"the connection to Telegram broke: {type(problem).__name__}")
        raise fault

    def _hidden(self, text: str) -> str:
        return text.replace(self.bot.token, "TOKEN")


@asynccontextmanager
async def open_api(token: Secret, base: str) -> AsyncIterator[Api]:
    """Yield the Bot API at an address; raise ConfigError for what cannot be a token."""
    session = Session(api=TelegramAPIServer.from_base(base))
    try:
        bot = Bot(token.value, session=session)
    except TokenValidationError:
        bot = None
    if bot is None:
        raise ConfigError(f"{token.name} is not the token of a bot: it is like 123456:ABC…")
    try:
        yield Api(bot, session)
    finally:
        await session.close()
