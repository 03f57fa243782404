"""A server of the Bot API for one bot, with the faults that a test asks for.

It follows the documentation: updates stay until a poll has a greater offset, an earlier poll ends
with 409 when another one begins, texts have at most 4096 units of UTF-16, and so on.
"""

from __future__ import annotations

import asyncio
import json
import os
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

from aiohttp import web

from tests.daemons import PATIENCE_SECONDS
from tests.plugins.telegram.chats import Answer, Chat, Json, Message, Trouble, check_text

BOT = {"id": 4242, "is_bot": True, "first_name": "Busy", "username": "busy_bot"}
_FILES = {"sendPhoto": "photo", "sendDocument": "document", "sendVoice": "voice"}
_FILES |= {"sendAudio": "audio", "sendVideo": "video"}


class Telegram:
    """The bot's side of Telegram; `start` runs it in a thread."""

    def __init__(self) -> None:
        self.token = f"4242:AA{os.urandom(16).hex()}"  # one process at a time may use it
        self.chats: dict[int, Chat] = {}
        self.messages: list[Message] = []  # that the bot has posted, in order
        self.requests: list[tuple[str, Json]] = []
        self.answers: list[Json] = []  # of answerCallbackQuery
        self.files: dict[str, bytes] = {}
        self.webhook: Json = {}
        self.confirmed: list[int] = []  # updates, in order
        self.waiting: dict[int, Json] = {}  # updates by id
        self._troubles: dict[str, list[Trouble]] = defaultdict(list)
        self._update_ids = count(1000)
        self._message_ids = count(1)
        self._loop = asyncio.new_event_loop()
        self._poll: asyncio.Event | None = None  # set: another one has begun
        self.url = ""

    # Life

    @contextmanager
    def start(self) -> Iterator[Telegram]:
        """Serve within the block."""
        started = threading.Event()
        thread = threading.Thread(target=self._run, args=[started], daemon=True)
        thread.start()
        assert started.wait(PATIENCE_SECONDS)
        try:
            yield self
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join(PATIENCE_SECONDS)

    def _run(self, started: threading.Event) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._open())
        started.set()
        self._loop.run_forever()
        self._loop.run_until_complete(self._close())
        self._loop.close()

    async def _open(self) -> None:
        self._changed = asyncio.Event()
        app = web.Application(client_max_size=64 * 1024 * 1024)
        app.router.add_route("*", "/bot{token}/{method}", self._answer)
        app.router.add_get("/file/bot{token}/{path:.*}", self._send_file)
        self._runner = web.AppRunner(app, shutdown_timeout=0.1, access_log=None)
        await self._runner.setup()
        site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{self._runner.addresses[0][1]}"

    async def _close(self) -> None:
        self._wake()
        await self._runner.cleanup()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    def _in_loop(self, function: Callable[[], None]) -> None:
        done = threading.Event()

        def work() -> None:
            function()
            self._wake()
            done.set()

        self._loop.call_soon_threadsafe(work)
        assert done.wait(PATIENCE_SECONDS)

    # What tests do

    def add_chat(self, id: int, kind: str = "private", **more: Any) -> Chat:  # noqa: A002
        chat = self.chats[id] = Chat(id, kind, **more)
        return chat

    def says(self, text: str = "", chat: int = 7, user: int = 7, **more: Any) -> int:
        """Let a user write a message; return its id. `more` is of the message."""
        number = next(self._message_ids)
        message = self._message_of(number, chat, user) | more
        if text:
            message["text"] = text
        self.update(message=message)
        return number

    def _message_of(self, number: int, chat: int, user: int) -> Json:
        where = self.chats.get(chat) or self.add_chat(chat)
        return {
            "message_id": number,
            "date": 1_700_000_000,
            "chat": where.as_json(),
            "from": user_of(user),
        }

    def edits(self, number: int, text: str, chat: int = 7, user: int = 7) -> None:
        message = self._message_of(number, chat, user)
        self.update(edited_message=message | {"text": text, "edit_date": 1_700_000_100})

    def presses(self, data: str, message: Message, user: int = 7) -> None:
        """Let a user press a button of a message."""
        query = {"id": "q1", "chat_instance": "1", "data": data, "from": user_of(user)}
        self.update(callback_query=query | {"message": message.as_json(self.chats)})

    def update(self, update_id: int | None = None, **said: Any) -> int:
        """Let Telegram deliver an update."""
        number = next(self._update_ids) if update_id is None else update_id

        def add() -> None:
            self.waiting[number] = {"update_id": number, **said}

        self._in_loop(add)
        return number

    def trouble(self, method: str, *troubles: Trouble) -> None:
        """Let the next requests of a method fail in these ways."""
        self._in_loop(lambda: self._troubles[method].extend(troubles))

    def heal(self) -> None:
        self._in_loop(self._troubles.clear)

    def texts(self, chat: int = 7) -> list[str]:
        """Return what a chat shows of the bot."""
        return [each.text for each in list(self.messages) if each.chat == chat]

    def calls(self, method: str) -> list[Json]:
        return [params for name, params in list(self.requests) if name == method]

    def until(self, condition: Callable[[], object]) -> None:
        """Wait in a test that is no coroutine."""
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not condition():
            assert time.monotonic() < deadline, self.requests[-5:]
            time.sleep(0.02)

    # Requests

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        method = request.match_info["method"]
        params: Json = {}
        for key, value in (await request.post()).items():
            params[key] = value.file.read() if isinstance(value, web.FileField) else value
        self.requests.append((method, params))
        waiting = self._troubles[method]
        trouble = waiting.pop(0) if waiting and waiting[0].concerns(params) else Trouble()
        answer = Answer.failed(401, "Unauthorized")
        if request.match_info["token"] == self.token:
            answer = trouble.answer or await self._do(method, params)
        return await trouble.respond(request, answer)

    async def _do(self, method: str, params: Json) -> Answer:
        handler = getattr(self, f"_on_{method}", None)
        if method in _FILES:
            return self._on_file(_FILES[method], params)
        if handler is None:
            return Answer.failed(404, "Not Found: method not found")
        done = handler(params)
        answer: Answer = await done if asyncio.iscoroutine(done) else done
        return answer

    def _on_getMe(self, params: Json) -> Answer:  # noqa: N802
        return Answer.of(BOT)

    async def _on_getUpdates(self, params: Json) -> Answer:  # noqa: N802
        if self.webhook.get("url"):
            return Answer.failed(
                409, "Conflict: can't use getUpdates method while webhook is active"
            )
        if self._poll is not None:
            self._poll.set()
        mine = self._poll = asyncio.Event()
        offset = int(params.get("offset", 0))
        for number in sorted(each for each in self.waiting if each < offset):
            del self.waiting[number]
            self.confirmed.append(number)
        deadline = self._loop.time() + int(params.get("timeout", 0))
        while not (found := self._fitting(params)) and (left := deadline - self._loop.time()) > 0:
            self._wake()
            tasks = [asyncio.ensure_future(each.wait()) for each in (mine, self._changed)]
            await asyncio.wait(tasks, timeout=left, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                task.cancel()
            if mine.is_set():
                return Answer.failed(409, "Conflict: terminated by other getUpdates request")
        if self._poll is mine:
            self._poll = None
        return Answer.of(found[: int(params.get("limit", 100))])

    def _fitting(self, params: Json) -> list[Json]:
        allowed = json.loads(params.get("allowed_updates", "[]"))
        found = [self.waiting[number] for number in sorted(self.waiting)]
        return [each for each in found if not allowed or "odd" in each or set(allowed) & set(each)]

    def _on_getWebhookInfo(self, params: Json) -> Answer:  # noqa: N802
        return Answer.of({"url": "", "pending_update_count": len(self.waiting)} | self.webhook)

    def _on_setWebhook(self, params: Json) -> Answer:  # noqa: N802
        self.webhook = {"url": params["url"], "secret": params.get("secret_token", "")}
        return Answer.of(True)

    def _on_deleteWebhook(self, params: Json) -> Answer:  # noqa: N802
        self.webhook = {}
        if params.get("drop_pending_updates") in ("true", "True"):
            self.waiting.clear()
        return Answer.of(True)

    def _on_sendChatAction(self, params: Json) -> Answer:  # noqa: N802
        return self._refusal(params) or Answer.of(True)

    def _on_answerCallbackQuery(self, params: Json) -> Answer:  # noqa: N802
        self.answers.append(params)
        return Answer.of(True)

    def _on_sendMessage(self, params: Json) -> Answer:  # noqa: N802
        refusal = self._refusal(params) or check_text(params)
        return refusal or self._post(params, text=params["text"])

    def _on_file(self, kind: str, params: Json) -> Answer:
        if refusal := self._refusal(params):
            return refusal
        said = params[kind]
        content = params.get(said.removeprefix("attach://"), b"")
        return self._post(params, text=params.get("caption", ""), kind=kind, content=content)

    def _refusal(self, params: Json) -> Answer | None:
        chat = self.chats.get(int(params["chat_id"]))
        if chat is None:
            return Answer.failed(400, "Bad Request: chat not found")
        return chat.refusal(params)

    def _post(self, params: Json, **more: Any) -> Answer:
        reply = json.loads(params.get("reply_parameters", "{}"))
        message = Message(
            chat=int(params["chat_id"]),
            id=next(self._message_ids),
            entities=json.loads(params.get("entities", "[]")),
            reply_to=reply.get("message_id", 0),
            thread=int(params.get("message_thread_id", 0)),
            markup=json.loads(params.get("reply_markup", "{}")),
            **more,
        )
        self.messages.append(message)
        return Answer.of(message.as_json(self.chats))

    def _on_editMessageText(self, params: Json) -> Answer:  # noqa: N802
        if refusal := self._refusal(params) or check_text(params):
            return refusal
        key = (int(params["chat_id"]), int(params["message_id"]))
        for message in self.messages:
            if (message.chat, message.id) == key:
                return message.edit(params) or Answer.of(message.as_json(self.chats))
        return Answer.failed(400, "Bad Request: message to edit not found")

    def _on_getFile(self, params: Json) -> Answer:  # noqa: N802
        content = self.files.get(params["file_id"])
        if content is None:
            return Answer.failed(400, "Bad Request: wrong file_id or the file is unavailable")
        if len(content) > 20 * 1024 * 1024:
            return Answer.failed(400, "Bad Request: file is too big")
        return Answer.of({"file_id": params["file_id"], "file_path": f"x/{params['file_id']}"})

    async def _send_file(self, request: web.Request) -> web.StreamResponse:
        name = request.match_info["path"].removeprefix("x/")
        waiting = self._troubles["file"]
        trouble = waiting.pop(0) if waiting else Trouble()
        if trouble.answer:
            return await trouble.respond(request, trouble.answer)
        return web.Response(body=self.files[name])


def user_of(user: int) -> Json:
    return {"id": user, "is_bot": False, "first_name": f"User{user}", "username": f"user{user}"}
