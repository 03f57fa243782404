"""An endpoint that speaks OpenAI's chat completions, as an agent."""

from __future__ import annotations

import contextlib
import logging
import os
from collections.abc import Callable
from functools import partial
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import msgspec
from anyio.abc import ObjectReceiveStream

from busd.agent.completion import Completion, refusal_of, retry_seconds_of
from busd.agent.conversation import Conversation
from busd.agent.program_check import check_no_secret, openai_extra_fix
from busd.agent.turn import Turn, TurnFailed
from busd.errors import ConfigError

if TYPE_CHECKING:
    import httpx

    from busd.agent.agent import Agent

log = logging.getLogger("busd.agent")

_KEY_NAME = "OPENAI_API_KEY"
_CONNECT_SECONDS, _SILENCE_SECONDS = 10.0, 120.0
_MAX_TRIES = 3
_LONGEST_PAUSE_SECONDS = 60.0
_MAX_REFUSAL_BYTES = 64 * 1024


class OpenAIWorker:
    """Asks the endpoint, with what was said before; the conversation is kept in the workspace.

    The settings `model` and `system` (by `configure`) change the model and the system prompt.
    """

    def __init__(self, agent: Agent, url: str, model: str, *, is_streaming: bool) -> None:
        check_no_secret(url)
        self._agent = agent
        self._url = _completions_url(url)
        self._model = model
        self._is_streaming = is_streaming
        self._conversation = Conversation(agent.data / "conversation.jsonl" if agent.data else None)
        self._key = find_key()
        self._open_client = _client_opener(self._key)

    async def answer(self, turn: Turn) -> str:
        """Ask the endpoint; raises TurnFailed saying why if it has no answer."""
        import httpx

        for tries_left in reversed(range(_MAX_TRIES)):
            try:
                answer = await self._ask(turn)
            except _TryLater as later:
                if not tries_left or later.seconds > _LONGEST_PAUSE_SECONDS:
                    raise later.failure from None
                log.info("the endpoint asks us to wait %g s", later.seconds)
                await anyio.sleep(later.seconds)
                continue
            except httpx.TimeoutException:
                raise TurnFailed("the endpoint did not answer in time", code="timeout") from None
            except httpx.HTTPError as problem:
                log.warning("%s: %r", self._url, problem)
                what = type(problem).__name__
                raise TurnFailed(
                    f"the endpoint cannot be reached, or broke off ({what})", code="unavailable"
                ) from None
            self._conversation.add(turn.text, answer)
            return answer
        raise AssertionError("unreachable")

    async def _ask(self, turn: Turn) -> str:
        body = msgspec.json.encode(self._body(turn.text))
        async with (
            self._open_client() as client,
            client.stream("POST", self._url, content=body) as response,
        ):
            if response.status_code != 200:
                raise await self._refusal(response)
            return await self._read(response, turn)

    async def _read(self, response: httpx.Response, turn: Turn) -> str:
        """Read the answer; a task of its own shows the pieces, so that reading is never cut."""
        import httpx

        completion, problem = Completion(), None
        read, shown = anyio.create_memory_object_stream[str](inf)  # as long as the answer, at most
        async with anyio.create_task_group() as tasks, read:
            tasks.start_soon(self._show, turn, shown)
            try:
                await read_body(response, lambda chunk: read.send_nowait(completion.feed(chunk)))
            except (TurnFailed, httpx.HTTPError) as trouble:
                problem = trouble
                tasks.cancel_scope.cancel()
        if problem is not None:
            raise problem
        return completion.finish()

    async def _show(self, turn: Turn, pieces: ObjectReceiveStream[str]) -> None:
        async with pieces:
            async for piece in pieces:
                if self._is_streaming:
                    await turn.delta(piece)

    def _body(self, text: str) -> dict[str, Any]:
        settings = self._agent.settings
        system = settings.get("system")
        said = self._conversation.messages()
        first = [{"role": "system", "content": str(system)}] if system else []
        return {
            "model": str(settings.get("model") or self._model),
            "messages": [*first, *said, {"role": "user", "content": text}],
            "stream": True,
        }

    async def _refusal(self, response: httpx.Response) -> Exception:
        """Return what a status other than 200 means for the turn."""
        body = bytearray()

        def take(chunk: bytes) -> None:
            body.extend(chunk)
            if len(body) > _MAX_REFUSAL_BYTES:
                raise TurnFailed("", code="refused")  # enough of it

        with contextlib.suppress(TurnFailed):
            await read_body(response, take)
        failure = refusal_of(response.status_code, bytes(body), self._key)
        if response.status_code == 429:
            seconds = retry_seconds_of(response.headers.get("retry-after", ""))
            if seconds is not None:
                return _TryLater(seconds, failure)
        return failure


async def read_body(response: httpx.Response, take: Callable[[bytes], None]) -> None:
    """Read to the end, or until `take` raises TurnFailed.

    It ends by being cancelled then: trio does not like generators that are left half read, and
    httpx has one in the other.
    """
    problem = None
    with anyio.CancelScope() as scope:
        async for chunk in response.aiter_bytes():
            try:
                if problem is None:
                    take(chunk)
            except TurnFailed as failure:
                problem = failure
                scope.cancel()
    if problem is not None:
        raise problem


class _TryLater(Exception):
    """The endpoint said when it will answer again."""

    def __init__(self, seconds: float, failure: TurnFailed) -> None:
        super().__init__(failure.message)
        self.seconds = seconds
        self.failure = failure
        if seconds > _LONGEST_PAUSE_SECONDS:
            wish = f"{failure.message}; it asks to wait {seconds:g} seconds"
            self.failure = TurnFailed(wish, code=failure.code)


def find_key() -> str:
    """Return the API key: a credential's, else the environment's; "" for endpoints without one."""
    if folder := os.environ.get("CREDENTIALS_DIRECTORY"):
        try:
            return (Path(folder) / _KEY_NAME).read_text().strip()
        except FileNotFoundError:
            pass
        except (OSError, UnicodeDecodeError) as problem:
            raise ConfigError(f"the credential {_KEY_NAME} cannot be read: {problem}") from None
    return os.environ.get(_KEY_NAME, "").strip()


def _completions_url(url: str) -> str:
    path, mark, query = url.partition("?")
    return f"{path.rstrip('/')}/chat/completions{mark}{query}"


def _client_opener(key: str) -> Callable[[], httpx.AsyncClient]:
    """Return what opens a client for one request; raise ConfigError if none could be opened."""
    try:
        import httpx
    except ImportError:
        raise ConfigError(f"--openai needs httpx; run: {openai_extra_fix()}") from None

    headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
    if key:
        if not key.isascii() or not key.isprintable():
            raise ConfigError(f"{_KEY_NAME} is no key: it has characters that no header can hold")
        headers["Authorization"] = f"Bearer {key}"
    return partial(
        httpx.AsyncClient,
        headers=headers,
        timeout=httpx.Timeout(_SILENCE_SECONDS, connect=_CONNECT_SECONDS),
        follow_redirects=False,  # the key is for this endpoint alone
        verify=httpx.create_ssl_context(),  # once: it reads all the authorities, 20 ms
    )
