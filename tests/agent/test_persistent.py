"""One program for a whole conversation."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from busd.agent.agent import Agent
from busd.agent.persistent_worker import PersistentWorker
from tests.agent.conftest import MakeAgent, User, serving
from tests.agent.test_exec import failure, until_gone

pytestmark = pytest.mark.anyio

COUNT = """
import os, sys, time
n = 0
for line in sys.stdin:
    n += 1
    print(n, os.getpid(), line.strip(), flush=True)
"""
CHAT = """
import sys
print("Welcome. Type exit to leave.\\n> ", end="", flush=True)
for line in sys.stdin:
    if line == "exit\\n":
        print("bye")
        sys.exit()
    print("> quoted", flush=True)
    print(line.upper(), end="")
    print("> ", end="", flush=True)
"""
SAY = """
import json, sys, os
for line in sys.stdin:
    asked = json.loads(line)
    text = asked["text"]
    if text == "die":
        print("ouch", file=sys.stderr)
        sys.exit(4)
    if text == "rubbish":
        print("rubbish", flush=True)
    elif text == "hang":
        print(json.dumps({"delta": str(os.getpid())}), flush=True)
    elif text == "fail":
        print(json.dumps({"error": "will not"}), flush=True)
    else:
        print(json.dumps({"delta": "a", "more": 1}))
        print()
        print(json.dumps({"text": f"{asked['sender']} {asked['message_id']} {text}"}), flush=True)
"""


@pytest.fixture
def make_worker(make_agent: MakeAgent, workspace: Path) -> Any:
    def make(code: str, manner: Any, turn_seconds: float | None = None, **options: Any) -> Agent:
        agent = make_agent(workspace=workspace, turn_seconds=turn_seconds)
        worker = PersistentWorker(agent, [sys.executable, "-c", code], manner, **options)
        agent.answers(worker.answer)
        return agent

    return make


async def test_the_same_program_answers_line_by_line(user: User, make_worker: Any) -> None:
    async with user, serving(make_worker(COUNT, "lines")):
        await user.write("one")
        first, pid, text = (await user.text()).split()
        assert (first, text) == ("1", "one")
        await user.write("two\nlines")
        assert await user.text() == f"2 {pid} two lines"
    await until_gone(int(pid))


async def test_lines_that_nobody_asked_for_answer_nothing(user: User, make_worker: Any) -> None:
    twice = "import sys\nfor line in sys.stdin: print(line + 'more', flush=True)"
    async with user, serving(make_worker(twice, "lines")):
        await user.write("one")
        assert await user.text() == "one"
        await user.write("two")
        assert await user.text() == "two"


async def test_an_answer_may_end_with_a_line_of_its_own(user: User, make_worker: Any) -> None:
    code = "import sys\nfor line in sys.stdin: print('a', line + 'b', 'END', sep='\\n', flush=True)"
    async with user, serving(make_worker(code, "lines", until="END", is_streaming=True)):
        for word in ("x", "y"):
            await user.write(word, f"m{word}")
            for piece in ("a", word, "b"):
                data = {"turn": f"m{word}", "text": f"{piece}\n"}
                assert await user.event("turn.delta") == data
            assert await user.text() == f"a\n{word}\nb"


async def test_an_answer_may_end_where_the_prompt_shows(user: User, make_worker: Any) -> None:
    async with user, serving(make_worker(CHAT, "lines", prompt="> ")):
        await user.write("hi")
        assert await user.text() == "> quoted\nHI"
        await user.write("ho")
        assert await user.text() == "> quoted\nHO"
        await user.write("exit")
        assert await user.text() == "bye"
        await user.write("back")
        assert await user.text() == "> quoted\nBACK"


async def test_objects_go_in_and_come_out(user: User, make_worker: Any) -> None:
    async with user, serving(make_worker(SAY, "json")):
        await user.write("two\nlines", "m")
        assert await user.event("turn.delta") == {"turn": "m", "text": "a"}
        assert await user.text() == f"{user.name} m two\nlines"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("die", "exit_code: the program ended with exit code 4: ouch"),
        ("rubbish", "bad_output: the program printed a line that is no JSON object"),
        ("fail", "worker_failed: will not"),
    ],
)
async def test_a_failure_is_told_and_the_next_message_is_answered(
    user: User, make_worker: Any, text: str, told: str
) -> None:
    async with user, serving(make_worker(SAY, "json")):
        await user.write(text)
        assert await failure(user) == told
        await user.write("again", "m")
        assert await user.event("turn.delta") == {"turn": "m", "text": "a"}
        assert await user.text() == f"{user.name} m again"


async def test_a_program_that_hangs_is_killed_and_started_anew(
    user: User, make_worker: Any
) -> None:
    async with user, serving(make_worker(SAY, "json")):
        await user.write("hang", "m")
        pid = int((await user.event("turn.delta"))["text"])
        await user.tell("turn.cancel", {})
        await until_gone(pid)
        await user.write("again", "n")
        assert await user.event("turn.delta") == {"turn": "n", "text": "a"}
        assert await user.text() == f"{user.name} n again"


async def test_a_program_that_says_nothing_runs_out_of_time(user: User, make_worker: Any) -> None:
    silent = "import time; time.sleep(1000)"
    async with user, serving(make_worker(silent, "lines", turn_seconds=0.3)):
        await user.write("hi")
        assert await failure(user) == "timeout: no answer within 0.3 seconds"


async def test_a_line_without_end_is_too_much(user: User, make_worker: Any) -> None:
    code = "import sys, time\nwhile 1: sys.stdout.write('x' * 65536)"
    async with user, serving(make_worker(code, "lines")):
        await user.write("hi")
        assert (await failure(user)).startswith("full: the program printed more than")


async def test_a_program_that_cannot_be_started_is_told(user: User, make_agent: MakeAgent) -> None:
    agent = make_agent()
    agent.answers(PersistentWorker(agent, ["/no/such"], "lines").answer)
    async with user, serving(agent):
        for _ in range(2):
            await user.write("hi")
            assert await failure(user) == "not_started: no such program: /no/such"


async def test_a_program_that_ends_between_two_messages_is_started_again(
    user: User, make_worker: Any
) -> None:
    once = "import os; input(); print(os.getpid(), flush=True)"
    async with user, serving(make_worker(once, "lines")):
        await user.write("one")
        pid = int(await user.text())
        await until_gone(pid)
        with anyio.fail_after(10):
            await user.write("two")
            assert int(await user.text()) != pid


async def test_the_program_dies_with_its_agent_in_the_middle_of_a_turn(
    user: User, make_worker: Any
) -> None:
    async with user:
        async with serving(make_worker(SAY, "json")):
            await user.write("hang")
            pid = int((await user.event("turn.delta"))["text"])
        await until_gone(pid)


async def test_objects_that_come_too_late_answer_nothing(user: User, make_worker: Any) -> None:
    code = """
import json, sys
for line in sys.stdin:
    text = json.loads(line)["text"]
    print(json.dumps({"text": text}), json.dumps({"delta": "late"}), sep="\\n", flush=True)
"""
    async with user, serving(make_worker(code, "json")):
        for word in "ab":
            await user.write(word)
            assert await user.text() == word
