"""An endpoint that speaks OpenAI's chat completions, as an agent."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from email.utils import formatdate
from pathlib import Path
from typing import Any

import anyio
import pytest

from busd.agent.agent import Agent
from busd.agent.completion import retry_seconds_of
from busd.agent.conversation import MAX_MESSAGES, Conversation
from busd.agent.openai_worker import OpenAIWorker
from busd.errors import ConfigError
from tests.agent.conftest import MakeAgent, User, serving
from tests.agent.endpoint import Asked, Endpoint, event, open_endpoint, refused, streamed
from tests.agent.test_exec import failure

pytestmark = pytest.mark.anyio
KEY = "sk-very-secret"


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with open_endpoint() as opened:
        yield opened


@pytest.fixture
def make_worker(
    make_agent: MakeAgent, workspace: Path, endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> Any:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)

    def make(is_streaming: bool = False, url: str = endpoint.url, **options: Any) -> Agent:
        agent = make_agent(workspace=workspace, **options)
        worker = OpenAIWorker(agent, url, "m-1", is_streaming=is_streaming)
        agent.answers(worker.answer)
        return agent

    return make


async def test_the_endpoint_is_asked_and_its_words_are_shown_as_they_come(
    user: User, make_worker: Any, endpoint: Endpoint
) -> None:
    endpoint.answers = [streamed("Grü", "ße", "!")]
    async with user, serving(make_worker(is_streaming=True)):
        await user.write("hi", "m")
        for word in ("Grü", "ße", "!"):
            assert await user.event("turn.delta") == {"turn": "m", "text": word}
        assert await user.text() == "Grüße!"
    [asked] = endpoint.asked
    assert asked.path == "/v1/chat/completions"
    assert asked.headers["Authorization"] == f"Bearer {KEY}"
    assert asked.body == {
        "model": "m-1",
        "messages": [{"role": "user", "content": "hi"}],
        "stream": True,
    }


async def test_the_conversation_goes_on_also_after_a_restart(
    user: User, make_worker: Any, endpoint: Endpoint, workspace: Path
) -> None:
    endpoint.answers = [streamed("one"), refused(500), streamed("two")]
    async with user:
        async with serving(make_worker()):
            await user.write("first")
            assert await user.text() == "one"
            await user.write("lost")
            await failure(user)
        async with serving(make_worker()):
            await user.write("second")
            assert await user.text() == "two"
    said = [(each["role"], each["content"]) for each in endpoint.asked[-1].body["messages"]]
    assert said == [("user", "first"), ("assistant", "one"), ("user", "second")]
    assert (workspace / "data" / "conversation.jsonl").stat().st_mode & 0o777 == 0o600


async def test_model_and_system_prompt_may_be_configured(
    user: User, make_worker: Any, endpoint: Endpoint
) -> None:
    endpoint.answers = [streamed("ok")]
    async with user, serving(make_worker()):
        settings = {"model": "m-2", "system": "Be brief."}
        await user.send({"type": "configure", "content": {"settings": settings}})
        await user.write("hi")
        assert await user.text() == "ok"
    body = endpoint.asked[0].body
    assert body["model"] == "m-2"
    assert body["messages"][0] == {"role": "system", "content": "Be brief."}


async def test_an_answer_that_is_not_streamed_will_do(
    user: User, make_worker: Any, endpoint: Endpoint
) -> None:
    document = {"choices": [{"message": {"role": "assistant", "content": "whole"}}]}
    text = json.dumps(document, indent=1).encode()
    endpoint.answers = [lambda asked: asked.send(200, text, Content_Type="application/json")]
    async with user, serving(make_worker(is_streaming=True)):
        await user.write("hi")
        assert await user.text() == "whole"


def wait_for_the_end(asked: Asked) -> None:
    """Say nothing until the other side hangs up."""
    assert asked.rfile.read(1) == b""


def hang_up(asked: Asked) -> None:
    asked.begin_stream()
    asked.write_chunk(event(delta={"content": "half"}))
    asked.close_connection = True


@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (refused(401, f"bad {KEY}"), "unauthorized: the endpoint refused the API key (HTTP 401)"),
        (
            refused(400, f"no, {KEY}!"),
            "refused: the endpoint refused the request (HTTP 400): no, …!",
        ),
        (
            refused(429, "slow down"),
            "rate_limited: the endpoint has had too many requests (HTTP 429): slow down",
        ),
        (
            refused(429, "", Retry_After="3600"),
            "rate_limited: the endpoint has had too many requests (HTTP 429); "
            "it asks to wait 3600 seconds",
        ),
        (refused(503, "overloaded"), "unavailable: the endpoint failed (HTTP 503): overloaded"),
        (
            refused(302, "", Location="http://127.0.0.1:1/"),
            "refused: the endpoint gave an answer that we do not know (HTTP 302)",
        ),
        (streamed("half", is_cut=True), "unavailable: the endpoint's answer broke off"),
        (
            hang_up,
            "unavailable: the endpoint cannot be reached, or broke off (RemoteProtocolError)",
        ),
        (streamed(), "empty: the endpoint gave an empty answer"),
        (
            lambda asked: asked.send(200, b"{nonsense"),
            "bad_answer: the endpoint's answer is no chat completion",
        ),
        (
            lambda asked: asked.send(200, b"<html>"),
            "unavailable: the endpoint's answer broke off",
        ),
        (
            lambda asked: asked.send(200, b'data: {"error": {"message": "oops"}}\n\n'),
            "unavailable: the endpoint failed: oops",
        ),
        (streamed("x" * 600_000), "full: the endpoint's answer is too long"),
    ],
)
async def test_a_failure_of_the_endpoint_is_told_without_the_key(
    user: User, make_worker: Any, endpoint: Endpoint, answer: Any, told: str
) -> None:
    endpoint.answers = [answer, streamed("again")]
    async with user, serving(make_worker()):
        await user.write("hi")
        assert await failure(user) == told
        await user.write("hi")
        assert await user.text() == "again"


async def test_an_endpoint_that_says_when_is_asked_again_then(
    user: User, make_worker: Any, endpoint: Endpoint
) -> None:
    soon = formatdate(time.time() + 1, usegmt=True)
    endpoint.answers = [
        refused(429, Retry_After="0.1"),
        refused(429, Retry_After=soon),
        streamed("now"),
    ]
    async with user, serving(make_worker()):
        await user.write("hi")
        assert await user.text() == "now"


async def test_an_endpoint_that_puts_off_for_ever_is_given_up(
    user: User, make_worker: Any, endpoint: Endpoint
) -> None:
    endpoint.answers = [refused(429, Retry_After="0") for _ in range(3)]
    async with user, serving(make_worker()):
        await user.write("hi")
        assert (await failure(user)).startswith("rate_limited: ")
    assert len(endpoint.asked) == 3


async def test_an_endpoint_that_is_not_there_is_told(user: User, make_worker: Any) -> None:
    async with user, serving(make_worker(url="http://127.0.0.1:1/v1")):
        await user.write("hi")
        told = "unavailable: the endpoint cannot be reached, or broke off (ConnectError)"
        assert await failure(user) == told


async def test_an_endpoint_that_hangs_runs_out_of_time(
    user: User, make_worker: Any, endpoint: Endpoint
) -> None:
    endpoint.answers = [wait_for_the_end]
    async with user, serving(make_worker(turn_seconds=0.3)):
        await user.write("hi")
        assert await failure(user) == "timeout: no answer within 0.3 seconds"


async def test_a_cancelled_turn_hangs_up(user: User, make_worker: Any, endpoint: Endpoint) -> None:
    def answer(asked: Asked) -> None:
        asked.begin_stream()
        asked.write_chunk(event(delta={"content": "so"}))
        wait_for_the_end(asked)
        gone.append(True)

    gone: list[bool] = []
    endpoint.answers = [answer]
    async with user, serving(make_worker(is_streaming=True)):
        await user.write("hi")
        await user.event("turn.delta")
        await user.tell("turn.cancel", {})
        with anyio.fail_after(10):
            while not gone:
                await anyio.sleep(0.01)


def test_the_key_of_a_credential_comes_first(
    make_worker: Any, workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from busd.agent.openai_worker import find_key

    assert find_key() == KEY
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(workspace))
    assert find_key() == KEY
    (workspace / "OPENAI_API_KEY").write_text("sk-file\n")
    assert find_key() == "sk-file"
    (workspace / "OPENAI_API_KEY").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="cannot be read"):
        find_key()


def test_a_key_that_no_header_can_hold_is_a_bad_setting(
    make_worker: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk\nX-Evil: 1")
    with pytest.raises(ConfigError, match="no key") as refusal:
        make_worker()
    assert "Evil" not in str(refusal.value)


def test_a_conversation_forgets_its_beginning(workspace: Path) -> None:
    file = workspace / "conversation.jsonl"
    talk = Conversation(file)
    for number in range(MAX_MESSAGES):
        talk.add(f"q{number}", f"a{number}")
    assert len(talk.messages()) == MAX_MESSAGES
    assert talk.messages()[0].content == f"q{MAX_MESSAGES // 2}"
    assert Conversation(file).messages() == talk.messages()
    talk.add("x" * 200_000, "too much")
    assert talk.messages() == []


def test_a_conversation_file_does_not_grow_for_ever_and_survives_rubbish(workspace: Path) -> None:
    file = workspace / "conversation.jsonl"
    talk = Conversation(file)
    for number in range(60):
        talk.add("q" * 20_000, str(number))
    assert file.stat().st_size < 1_200_000
    file.write_bytes(b'rubbish\n{"role":"assistant","content":"a"}\n' + file.read_bytes() + b'{"ro')
    assert Conversation(file).messages() == talk.messages()


@pytest.mark.parametrize(
    ("header", "seconds"),
    [("3", 3.0), ("-1", 0.0), ("nan", 0.0), ("", None), ("soon", None), (formatdate(0), 0.0)],
)
def test_retry_after_is_read_leniently(header: str, seconds: float | None) -> None:
    assert retry_seconds_of(header) == seconds
