"""What can go wrong between a real client, the gateway and an agent, over real sockets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import anyio
import pytest
import socketio

from busd.testing.gateway import Words
from tests.gateway.tkr.test_sockets import (
    Served,
    SocketClient,
    anyio_backend,
    connected,
    contents,
    is_pong,
    open_served,
)

__all__ = ["anyio_backend"]
pytestmark = pytest.mark.anyio
WEB_SOCKET = ["websocket"]
MIB = 1024 * 1024


def is_system(event: str, data: Any) -> bool:
    return event == "message" and data["type"] == "system"


def is_error(event: str, data: Any) -> bool:
    return event == "error"


def is_failure(event: str, data: Any) -> bool:
    return event == "message" and data["type"] == "error"


def is_content(content: str) -> Callable[[str, Any], bool]:
    """Return what finds the message with this content."""
    return lambda event, data: event == "message" and data["content"] == content


async def say(client: SocketClient, message_id: str, content: str, **more: Any) -> Any:
    message = {"id": message_id, "type": "text", "from_user": True, "content": content}
    return await client.call("message", message | more)


async def ask(served: Served, client: SocketClient, **prompt: Any) -> Words:
    """Let the agent bob ask the client something in session s1."""
    bob = served.kit.agent("bob")
    await say(client, "m1", "book a table", session_id="s1")
    words = bob.words()
    asked = {"id": "p1", "input_type": "radio", "text": "Where?", "options": ["ulm", "ems"]}
    words.tell("turn.prompt", **(asked | prompt), required=True)
    await client.until(is_system)
    return words


async def test_an_answer_to_the_question_of_another_session_is_refused() -> None:
    async with open_served() as served:
        token = served.tokens.new("ann")
        async with connected(served, token, WEB_SOCKET, "session_id=s1", "/") as client:
            words = await ask(served, client)
            ack = await say(client, "m2", "ulm", session_id="s2", in_reply_to="p1")
            assert ack["status"] == "delivered"  # it is a text of that session
            assert words.agent.words().content.get("prompt_id") is None
            metadata = {"prompt_id": "p1"}
            ack = await say(client, "m3", "ulm", session_id="s2", metadata=metadata)
            assert (ack["status"], ack["id"]) == ("error", "m3")
            [*_, (_, error)] = await client.until(is_error)
            assert error["details"]["field"] == "prompt_id"
            assert (await say(client, "m4", "ulm", session_id="s1"))["status"] == "delivered"
            assert words.agent.words().content["prompt_id"] == "p1"


async def test_a_second_answer_to_a_question_is_refused() -> None:
    async with open_served() as served:
        token = served.tokens.new("ann")
        async with connected(served, token, WEB_SOCKET, "session_id=s1", "/") as client:
            words = await ask(served, client)
            metadata = {"prompt_id": "p1"}
            statuses = [
                (await say(client, message_id, value, session_id="s1", metadata=metadata))["status"]
                for message_id, value in (("m2", "ulm"), ("m3", "ems"))
            ]
            assert statuses == ["delivered", "error"]
            assert words.agent.words().text == "ulm"
            await served.kit.settle()
            assert not words.agent.peer.inbox


async def test_a_question_whose_time_is_up_is_closed() -> None:
    async with open_served() as served:
        token = served.tokens.new("ann")
        async with connected(served, token, WEB_SOCKET, "session_id=s1", "/") as client:
            await ask(served, client, timeout_seconds=30)
            await served.kit.advance(31)
            [*_, (_, closed)] = await client.until(is_system)
            assert closed["metadata"] == {"prompt_id": "p1", "closed": "timed_out"}
            metadata = {"prompt_id": "p1"}
            ack = await say(client, "m2", "ulm", session_id="s1", metadata=metadata)
            assert ack["status"] == "error"


async def test_an_unknown_option_of_a_checkbox_is_refused_and_the_question_stays_open() -> None:
    async with open_served() as served:
        token = served.tokens.new("ann")
        async with connected(served, token, WEB_SOCKET, "session_id=s1", "/") as client:
            words = await ask(served, client, input_type="checkbox")
            ack = await say(client, "m2", "ulm, rome", session_id="s1")
            assert ack["status"] == "error"
            assert "no such option" in ack["message"]
            assert (await say(client, "m3", "ulm, 2", session_id="s1"))["status"] == "delivered"
            assert words.agent.words().text == "ulm\nems"


async def test_words_to_an_agent_that_does_not_exist_fail() -> None:
    async with open_served() as served:
        token = served.tokens.new("ann")
        async with connected(served, token, WEB_SOCKET, "session_id=s1", "/") as client:
            ack = await say(client, "m1", "hello", session_id="s1", to_agent="nobody")
            assert ack["status"] == "delivered"
            [*_, (_, failure)] = await client.until(is_failure)
            assert failure["in_reply_to"] == "m1"
            assert "agent:nobody" in failure["content"]


async def test_a_flood_of_signs_of_typing_does_not_delay_another_client() -> None:
    async with open_served() as served:
        served.kit.agent("bob")
        ann, ben = served.tokens.new("ann"), served.tokens.new("ben")
        async with (
            connected(served, ann, WEB_SOCKET, "session_id=s1") as loud,
            connected(served, ben, WEB_SOCKET, "session_id=s1") as calm,
        ):
            part = {"id": "m1", "type": "text", "from_user": True, "content": "h"}

            async def flood() -> None:
                for _ in range(1_000):
                    await loud.io.emit("message", part | {"streaming": True}, namespace="/agents")

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(flood)
                for _ in range(10):
                    with anyio.fail_after(5):
                        assert (await calm.call("ping", None))["status"] == "pong"
                tasks.cancel_scope.cancel()


async def test_a_page_of_a_foreign_site_is_refused() -> None:
    async with open_served() as served:
        for transports in (["polling"], WEB_SOCKET):
            client = socketio.AsyncClient(reconnection=False)
            headers = {
                "Authorization": f"Bearer {served.tokens.new(transports[0])}",
                "Origin": "https://foreign.example",
            }
            with pytest.raises(socketio.exceptions.ConnectionError):
                await client.connect(served.url, headers=headers, transports=transports)
            if client.eio.http is not None:
                await client.eio.http.close()  # it leaves that to its user
        assert not served.kit.hub.sessions


@pytest.mark.parametrize("transports", [["polling"], WEB_SOCKET], ids="-".join)
async def test_a_token_in_the_wrong_place_lets_nobody_in(transports: list[str]) -> None:
    async with open_served() as served:
        token = served.tokens.new("ann")
        client = SocketClient("/")
        await client.io.connect(
            f"{served.url}/?access_token={token}",
            headers={"Cookie": f"token={token}", "X-Token": token},
            auth={"auth_token": token},
            transports=transports,
            namespaces=["/"],
        )
        ack = await say(client, "m1", "hello", session_id="s1", token=token)
        assert ack["status"] == "error"
        [*_, (_, error)] = await client.until(is_error)
        assert error["error_code"] == "socket.auth.required"
        await client.io.disconnect()


async def test_a_frame_over_the_limit_is_refused_and_the_connection_lives_on() -> None:
    async with open_served() as served:
        bob, token = served.kit.agent("bob"), served.tokens.new("ann")
        async with connected(served, token, WEB_SOCKET, "session_id=s1", "/") as client:
            message = {"id": "m1", "session_id": "s1", "content": "x" * (5 * MIB + 1)}
            await client.io.emit("message", message, namespace="/")
            [*_, (_, error)] = await client.until(is_error)
            assert error["details"]["rule"] == "limit"
            assert (await say(client, "m2", "hello", session_id="s1"))["status"] == "delivered"
            assert bob.words().text == "hello"


@pytest.mark.parametrize("transports", [["polling"], WEB_SOCKET], ids="-".join)
async def test_a_socket_that_is_lost_in_the_middle_of_an_answer(transports: list[str]) -> None:
    async with open_served() as served:
        bob, token = served.kit.agent("bob"), served.tokens.new("ann")
        async with connected(served, token, transports, "session_id=s1") as client:
            await say(client, "m1", "hello", session_id="s1")
            words = bob.words()
            words.tell("turn.delta", text="hello ")
            await client.until(is_content("hello "))
            await client.io.eio.disconnect(abort=True)  # without a word
        words.tell("turn.delta", text="your")
        await served.kit.settle()
        async with connected(served, token, transports, "session_id=s1") as client:
            await client.until(is_content("hello your"))
            words.reply("hello yourself")
            await client.until(is_content("hello yourself"))
            await client.call("ping", None)
            assert contents(await client.until(is_pong)) == []
