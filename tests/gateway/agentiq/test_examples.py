"""Messages as the format's document shows them: with its placeholders, commas and type names.

Each is sent in as it stands; those of the server are also compared with what the dialect sends.
"""

from __future__ import annotations

import re
from typing import Any

import pytest

from busd.gateway import Answer, Enter, Post, Say, parse_lenient
from busd_plugins.agentiq.dialect import AgentIQ
from busd_plugins.agentiq.messages import ALIASES
from tests.gateway.agentiq.asking import ask, connect, errors
from tests.gateway.stage.line import Line, given

USER = """{
  "type": "user_message",
  "schema_type": "string",
  "id": "string",
  "thread_id": "string",
  "content": {
    "messages": [
      {"role": "user", "content": [{"type": "text", "text": "Good morning"}]},
      {"role": "assistant", "content": [{"type": "text", "text": "And to you"}]},
      {"role": "user", "content": [{"type": "text", "text": "add these up"}]}
    ]
  },
  "timestamp": "string",
  "user": {"name": "string", "email": "string"},
  "security": {"api_key": "string", "token": "string"},
  "error": {"code": "string", "message": "string", "details": "object"},
  "schema_version": "string"
}"""
INTERACTION = """{
  "type": "user_interaction_message",
  "id": "string",
  "thread_id": "string",
  "parent_id": "string",
  "content": {
    "messages": [
      {
        "role": "user",
        "content": [
          {
            "type": "text",
            "text": "Yes, go on with it"
          },
        ]
      }
    ]
  },
  "timestamp": "string",
  "user": {"name": "string", "email": "string"},
  "security": {"api_key": "string", "token": "string"},
  "schema_version": "string"
}"""
STEP = """{
  "type": "system_intermediate_message",
  "id": "step_1",
  "thread_id": "thread_1",
  "parent_id": "root",
  "intermediate_parent_id": "default",
  "content": {"name": "sort the words", "payload": "plain text, JSON or code"},
  "status": "in_progress",
  "timestamp": "2025-01-13T10:00:00.000Z"
}"""
TOKEN = """{
  "type": "system_response_message",
  "id": "token_1",
  "thread_id": "thread_1",
  "parent_id": "m1",
  "content": {"text": "a piece of the answer"},
  "status": "in_progress",
  "timestamp": "2025-01-13T10:00:00.000Z"
}"""
ERROR = """{
  "type": "error_message",
  "id": "token_1",
  "thread_id": "thread_1",
  "parent_id": "m1",
  "content": {"code": "111", "message": "no such address", "details": "It has no @."},
  "status": "in_progress",
  "timestamp": "2025-01-13T10:00:00.000Z"
}"""
THREE = """[
      {"id": "post", "label": "Post", "value": "post", "description": "A letter comes"},
      {"id": "call", "label": "Call", "value": "call", "description": "The telephone rings"},
      {"id": "visit", "label": "Visit", "value": "visit", "description": "Somebody knocks"},
    ]"""
TWO = """[
      {"id": "continue", "label": "Go on", "value": "continue",},
      {"id": "cancel", "label": "Stop", "value": "cancel",}
    ]"""


def prompt(kind: str, message_type: str, more: str) -> str:
    return f"""{{
  "type": "{message_type}",
  "id": "interaction_1",
  "thread_id": "thread_1",
  "parent_id": "m1",
  "content": {{
    "input_type": "{kind}",
    "text": "How shall we tell you?",
    {more},
    "required": true
  }},
  "status": "in_progress",
  "timestamp": "2025-01-13T10:00:00.000Z"
}}"""


PROMPTS = {
    "text": prompt("text", "system_interaction_message", '"placeholder": "Say it."'),
    "binary_choice": prompt("binary_choice", "system_interaction_message", f'"options": {TWO}'),
    "radio": prompt("radio", "system_human_interaction", f'"options": {THREE}'),
    "checkbox": prompt("checkbox", "system_human_interaction_name", f'"options": {THREE}'),
    "dropdown": prompt(
        "dropdown",
        "system_human_interaction",
        f'"interaction": "system_human_interaction_name", "options": {THREE}',
    ),
}
SYSTEM = {"step": STEP, "token": TOKEN, "error": ERROR, **PROMPTS}


def test_the_last_words_of_a_user_message_reach_the_agent() -> None:
    line = Line(AgentIQ)
    assert line.open() == []
    assert line.send(USER) == []
    [say] = line.asked_for(Say)
    assert (say.entry.text, say.entry.id, say.entry.thread_id) == ("add these up", *["string"] * 2)
    assert (say.conversation, say.interrupts, say.entry.author.name) == ("string", True, "string")
    assert given(say.entry.metadata) == {
        "schema_type": "string",
        "schema_version": "string",
        "user": {"name": "string", "email": "string"},
    }
    sent = parse_lenient(USER)
    del sent["security"]
    assert given(say.entry.original) == sent


def test_an_interaction_message_answers_the_prompt_of_its_parent() -> None:
    line = connect("")
    ask(line, message_id="string", thread_id="string")
    line.ask(input_type="text", text="Shall I?")
    assert line.send(INTERACTION) == []
    [given_answer] = line.asked_for(Answer)
    assert given_answer.values == ("Yes, go on with it",)
    assert (given_answer.conversation, given_answer.entry.prompt_id) == ("string", "p1")


@pytest.mark.parametrize("name", SYSTEM)
def test_a_message_of_the_server_that_a_client_sends_is_kept_as_its_own_post(name: str) -> None:
    line = connect("")
    assert line.send(SYSTEM[name]) == []
    [post] = line.asked_for(Post)
    sent = parse_lenient(SYSTEM[name])
    assert given(post.entry.original) == sent
    assert post.entry.type == ALIASES.get(sent["type"], sent["type"])
    assert (post.entry.author.id, post.entry.thread_id) == ("ann", "thread_1")
    assert post.entry.text


def asked(**about: Any) -> Line:
    line = connect("thread_1")
    ask(line, thread_id="thread_1", **about)
    return line


def check(frame: dict[str, Any], example: str) -> None:
    """Compare a frame with an example: it has another id, and says to which conversation it is."""
    wanted = parse_lenient(example)
    wanted["content"].pop("interaction", None)
    wanted["type"] = ALIASES.get(wanted["type"], wanted["type"])
    assert {name: frame[name] for name in wanted} == {**wanted, "id": frame["id"]}
    assert frame["conversation_id"] == "thread_1"
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z", frame["timestamp"])


def test_a_step_is_sent_as_shown() -> None:
    [frame] = asked().step(id="step_1", name="sort the words", payload="plain text, JSON or code")
    check(frame, STEP)
    assert frame["id"] == "step_1"


def test_a_piece_of_an_answer_is_sent_as_shown() -> None:
    [frame] = asked().delta("a piece of the answer")
    check(frame, TOKEN)


def test_an_error_is_sent_as_shown_with_a_code_that_clients_know() -> None:
    line = asked()
    line.delta("Let me see. ")
    [frame, end] = line.fail("111", "no such address")
    check(frame, ERROR.replace('"111"', '"workflow_error"').replace("It has no @.", "111"))
    assert (end["status"], end["content"]) == ("complete", {"text": None})


@pytest.mark.parametrize("kind", PROMPTS)
def test_a_prompt_is_sent_as_shown(kind: str) -> None:
    content = parse_lenient(PROMPTS[kind])["content"]
    content.pop("interaction", None)
    [frame] = asked().ask(**content)
    check(frame, PROMPTS[kind])


def test_no_message_is_refused_as_it_stands() -> None:
    line = Line(AgentIQ)
    frames = [frame for each in (USER, *SYSTEM.values()) for frame in line.send(each)]
    assert errors(frames) == []
    assert {enter.conversation for enter in line.asked_for(Enter)} == {"string", "thread_1"}
