"""Prompts: an agent's question as buttons, and the answer of the user who was asked.

turn.prompt → message with buttons → `callback_query` → `push` with the prompt's id

The data of a button names its question and an option. The store knows to which chat, message and
user the question belongs, also after a restart.
"""

from __future__ import annotations

import logging
from hashlib import sha256

import msgspec
from aiogram.methods import AnswerCallbackQuery, EditMessageText
from aiogram.types import CallbackQuery, InlineKeyboardButton, InlineKeyboardMarkup, Message

from busd import Bridge, CallRefused
from busd.bridge import Inbound, LivePrompt, LiveTurn, TooLarge
from busd_plugins.telegram.api import Api
from busd_plugins.telegram.chats import Chats, is_group, place_of, turn_of
from busd_plugins.telegram.faults import Fault
from busd_plugins.telegram.markdown import Formatted, format_markdown, split_formatted
from busd_plugins.telegram.posting import Outgoing, Poster
from busd_plugins.telegram.store import Store

log = logging.getLogger("busd.telegram")

_CHOICES = ("binary_choice", "radio", "checkbox", "dropdown")
_MAX_OPTIONS = 50  # more are posted as text
_MAX_LABEL = 60
_LIMIT = 3_500  # of the question, so that the answer can be added
_DONE = "done"
_STALE = "This question is no longer open."
_NOT_ASKED = "Only the person who was asked can answer."


class Question(msgspec.Struct):
    """A prompt that is shown with buttons."""

    prompt_id: str
    chat_id: str  # on the bus
    turn: str
    text: str
    labels: list[str]
    values: list[str]
    is_multiple: bool = False
    asker: str = ""  # who began the turn; "": not known, anybody may answer
    message_id: int = 0
    chosen: list[int] = []
    last_update: int = 0
    is_open: bool = True


class Prompts:
    """The questions that are shown."""

    def __init__(
        self, bridge: Bridge, api: Api, chats: Chats, store: Store, poster: Poster
    ) -> None:
        self._bridge = bridge
        self._api = api
        self._chats = chats
        self._store = store
        self._poster = poster
        self._by_turn: dict[tuple[str, str], str] = {}  # names of those that are open

    # Questions

    async def show(self, live: LiveTurn) -> None:
        """Show the prompt of a turn, or remove the buttons of one that was answered by text."""
        key = (live.chat_id, live.turn)
        prompt = live.prompt
        name = _name_of(live.chat_id, prompt.id) if prompt else ""
        if self._by_turn.get(key, name) != name:
            await self._close(self._by_turn.pop(key))
        if prompt is None or prompt.external_id or not _has_buttons(prompt):
            return
        question = Question(
            prompt_id=prompt.id,
            chat_id=live.chat_id,
            turn=live.turn,
            text=prompt.text,
            labels=[each.label for each in prompt.options],
            values=[each.value for each in prompt.options],
            is_multiple=prompt.input_type == "checkbox",
            asker=self._asker(live),
        )
        if not self._store.put("question", name, question):  # its buttons may be pressed at once
            return  # the reply of the prompt is posted as text
        prompt.external_id = await self._post(name, question)
        question.message_id = int(prompt.external_id)
        self._store.put("question", name, question)
        self._by_turn[key] = name

    def _asker(self, live: LiveTurn) -> str:
        if not is_group(live.chat_id):
            return live.chat_id  # of a private chat it is the user
        if live.inbound is not None:
            return live.inbound.sender_id
        return self._store.find("asker", f"{live.chat_id} {live.turn}", str) or ""

    def note_asker(self, inbound: Inbound) -> None:
        """Remember who has begun a turn in a group."""
        if is_group(inbound.chat_id):
            self._store.put("asker", f"{inbound.chat_id} {inbound.turn}", inbound.sender_id)

    async def _post(self, name: str, question: Question) -> str:
        place = place_of(question.turn)
        formatted = _shown(question.text)
        outgoing = Outgoing(
            self._chats.outer(question.chat_id),
            formatted,
            thread_id=place.thread_id,
            markup=_buttons(name, question),
        )
        if is_group(question.chat_id):
            outgoing.reply_to = place.message_id
        return await self._poster.send(outgoing)

    async def _close(self, name: str, answer: str = "") -> None:
        """Remove the buttons of a question; with an answer, show that instead."""
        question = self._store.find("question", name, Question)
        if question is None or not question.is_open:
            return
        question.is_open = False
        self._store.put("question", name, question)
        self._by_turn.pop((question.chat_id, question.turn), None)
        await self._edit(question, f"\n\n✓ {answer}" if answer else "", None)

    async def close_turn(self, chat_id: str, turn: str) -> None:
        """Remove the buttons of a turn that has its reply."""
        if name := self._by_turn.pop((chat_id, turn), ""):
            await self._close(name)

    async def _edit(
        self, question: Question, added: str, markup: InlineKeyboardMarkup | None
    ) -> None:
        if not question.message_id:
            return
        text = _shown(question.text).text
        try:
            await self._api.call(
                EditMessageText(
                    chat_id=self._chats.outer(question.chat_id),
                    message_id=question.message_id,
                    text=text + added,
                    reply_markup=markup,
                )
            )
        except Fault as fault:
            log.info("the buttons in %s stay as they are: %s", question.chat_id, fault)

    # Answers

    async def take(self, query: CallbackQuery, update_id: int, external_id: str) -> None:
        """Process a button that was pressed; the user is told if it has no effect."""
        name, _, pressed = (query.data or "").partition(":")
        question = self._store.find("question", name, Question)
        message = query.message
        chat_id = self._chats.inner(message.chat.id) if message else ""
        if question is None or not isinstance(message, Message) or chat_id != question.chat_id:
            await self._tell(query, _STALE)
            return
        if question.asker and str(query.from_user.id) != question.asker:
            await self._tell(query, _NOT_ASKED)
            return
        if question.last_update == update_id and not question.is_open:
            return  # it was delivered twice
        if not question.is_open:
            await self._tell(query, _STALE)
            return
        question.message_id = message.message_id
        if question.is_multiple and pressed != _DONE:
            await self._toggle(query, name, question, pressed, update_id)
            return
        await self._answer(query, name, question, pressed, update_id, external_id, message)

    async def _toggle(
        self, query: CallbackQuery, name: str, question: Question, pressed: str, update_id: int
    ) -> None:
        number = _option(pressed, question)
        if number is not None and question.last_update != update_id:
            question.chosen = sorted(set(question.chosen) ^ {number})
            question.last_update = update_id
            self._store.put("question", name, question)
        await self._tell(query)
        await self._edit(question, "", _buttons(name, question))

    async def _answer(
        self,
        query: CallbackQuery,
        name: str,
        question: Question,
        pressed: str,
        update_id: int,
        external_id: str,
        message: Message,
    ) -> None:
        numbers = question.chosen if question.is_multiple else [_option(pressed, question)]
        chosen = [each for each in numbers if each is not None]
        if not chosen:
            await self._tell(query, "Choose at least one." if question.is_multiple else _STALE)
            return
        # From now on it is closed here, with the answer, and not because the turn goes on.
        self._by_turn.pop((question.chat_id, question.turn), None)
        user = query.from_user
        inbound = Inbound(
            chat_id=question.chat_id,
            text="\n".join(question.values[each] for each in chosen),
            sender_id=str(user.id),
            external_id=external_id,
            message_id=turn_of(message, f"c{update_id}"),
            username=user.username or "",
            full_name=user.full_name,
            prompt_id=question.prompt_id,
        )
        try:
            await self._bridge.push(inbound)
        except (CallRefused, TooLarge):
            await self._tell(query, _STALE)
            await self._close(name)
            return
        question.last_update = update_id
        self._store.put("question", name, question)
        await self._tell(query)
        await self._close(name, ", ".join(question.labels[each] for each in chosen))

    async def _tell(self, query: CallbackQuery, text: str = "") -> None:
        """Answer a button, so that it does not blink on; with a text, the user sees that."""
        answer = AnswerCallbackQuery(
            callback_query_id=query.id, text=text or None, show_alert=bool(text)
        )
        try:
            await self._api.call(answer)
        except Fault as fault:  # too late for Telegram, after a restart
            log.info("a button is not answered: %s", fault)


def _has_buttons(prompt: LivePrompt) -> bool:
    is_choice = prompt.input_type in _CHOICES and bool(prompt.text.strip())
    return is_choice and 0 < len(prompt.options) <= _MAX_OPTIONS


def _shown(text: str) -> Formatted:
    """Return the text of a question, as far as there is room."""
    return next(iter(split_formatted(format_markdown(text), _LIMIT)), Formatted("?"))


def _name_of(chat_id: str, prompt_id: str) -> str:
    """Return the name of a question; the data of a button has at most 64 bytes."""
    return sha256(f"{chat_id} {prompt_id}".encode()).hexdigest()[:24]


def _option(pressed: str, question: Question) -> int | None:
    number = int(pressed) if pressed.isascii() and pressed.isdigit() and len(pressed) < 4 else -1
    return number if 0 <= number < len(question.values) else None


def _buttons(name: str, question: Question) -> InlineKeyboardMarkup:
    rows = []
    for number, label in enumerate(question.labels):
        mark = ("☑ " if number in question.chosen else "☐ ") if question.is_multiple else ""
        shown = f"{mark}{label[:_MAX_LABEL] or number + 1}"
        rows.append([InlineKeyboardButton(text=shown, callback_data=f"{name}:{number}")])
    if question.is_multiple:
        rows.append([InlineKeyboardButton(text="Done", callback_data=f"{name}:{_DONE}")])
    return InlineKeyboardMarkup(inline_keyboard=rows)
