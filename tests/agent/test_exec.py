"""Any command as an agent: its words are the answer, its failures are told."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import anyio
import pytest

from busd.agent.agent import Agent
from busd.agent.exec_worker import ExecWorker
from tests.agent.conftest import MakeAgent, User, serving
from tests.daemons import PATIENCE_SECONDS

pytestmark = pytest.mark.anyio
MIB = 1024 * 1024


@pytest.fixture
def make_worker(make_agent: MakeAgent, workspace: Path) -> Any:
    """Make an agent that a command answers for."""

    def make(
        *command: str, as_argument: bool = False, is_streaming: bool = False, **options: Any
    ) -> Agent:
        agent = make_agent(workspace=workspace, **options)
        worker = ExecWorker(agent, command, as_argument=as_argument, is_streaming=is_streaming)
        agent.answers(worker.answer)
        return agent

    return make


def python(code: str) -> tuple[str, ...]:
    return (sys.executable, "-c", code)


async def failure(user: User) -> str:
    """Return what the user is told of a failure, in both ways."""
    error = await user.event("turn.error")
    assert await user.text() == f"Sorry, that failed: {error['message']}"
    return f"{error['code']}: {error['message']}"


async def until_gone(pid: int) -> None:
    """Wait until a process is no more; a zombie is one that only waits to be buried."""
    with anyio.fail_after(PATIENCE_SECONDS):
        while is_running(pid):
            await anyio.sleep(0.01)


def is_running(pid: int) -> bool:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


async def test_the_text_goes_in_and_what_is_printed_comes_out(user: User, make_worker: Any) -> None:
    async with user, serving(make_worker("tr", "a-z", "A-Z")):
        await user.write("hello\nworld")
        assert await user.text() == "HELLO\nWORLD"
        await user.write("grüße 🎉")
        assert await user.text() == "GRüßE 🎉"


async def test_the_text_may_be_the_last_argument(user: User, make_worker: Any) -> None:
    async with user, serving(make_worker("printf", "--", "<%s>", as_argument=True)):
        await user.write("a b; $HOME `id`")
        assert await user.text() == "<a b; $HOME `id`>"


async def test_the_program_knows_where_it_is_and_for_whom(
    user: User, stranger: User, make_worker: Any, workspace: Path
) -> None:
    names = ("BUSD_CLIENT_ID", "BUSD_MESSAGE_ID", "BUSD_SENDER", "BUSD_WORKSPACE")
    show = f"import os; print(os.getcwd(), *(os.environ[n] for n in {names}), sep='\\n')"
    async with user, stranger, serving(make_worker(*python(show))):
        await stranger.write("hi", "m\0m")
        expected = [workspace, user.agent, "mm", stranger.name, workspace]
        assert (await user.text()).split("\n") == [str(each) for each in expected]


async def test_lines_are_shown_as_they_come(user: User, make_worker: Any, workspace: Path) -> None:
    os.mkfifo(workspace / "go")
    script = "echo one; cat go; printf 'two\\nthr'; printf ee"
    async with user, serving(make_worker("sh", "-c", script, is_streaming=True)):
        await user.write("hi", "m")
        assert await user.event("turn.delta") == {"turn": "m", "text": "one\n"}
        await anyio.Path(workspace / "go").write_text("")
        assert await user.event("turn.delta") == {"turn": "m", "text": "two\n"}
        assert await user.text() == "one\ntwo\nthree"


async def test_silence_is_said(user: User, make_worker: Any) -> None:
    async with user, serving(make_worker("true")):
        await user.write("hi")
        assert await user.text() == "(no output)"


async def test_a_program_that_does_not_read_is_not_waited_for(user: User, make_worker: Any) -> None:
    async with user, serving(make_worker("echo", "done")):
        await user.write("x" * 500_000)
        assert await user.text() == "done"


async def test_a_program_that_answers_as_it_reads_is_not_stuck(
    user: User, make_worker: Any
) -> None:
    async with user, serving(make_worker("cat")):
        await user.write("x" * 500_000)
        assert await user.text() == "x" * 500_000


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (["sh", "-c", "exit 3"], "exit_code: the program ended with exit code 3"),
        (
            ["sh", "-c", "seq 9 >&2; echo; printf why >&2; exit 1"],
            "exit_code: the program ended with exit code 1: 6\n7\n8\n9\nwhy",
        ),
        (["sh", "-c", "kill -9 $$"], "exit_code: the program was killed by SIGKILL"),
        (["/no/such"], "not_started: no such program: /no/such"),
        (["/etc"], "not_started: /etc cannot be started: Permission denied"),
        (["yes"], f"full: the program printed more than {MIB} bytes"),
        (["sh", "-c", "echo 'no'; sleep 1000"], "timeout: no answer within 0.5 seconds"),
    ],
)
async def test_a_failure_is_told_as_it_is(
    user: User, make_worker: Any, command: list[str], told: str
) -> None:
    seconds = 0.5 if told.startswith("timeout") else PATIENCE_SECONDS
    async with user, serving(make_worker(*command, turn_seconds=seconds)):
        await user.write("hi")
        assert await failure(user) == told


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a\0b", "not_started: a message with a NUL in it cannot be an argument"),
        ("x" * 200_000, "not_started: the message is too long to be an argument"),
    ],
)
async def test_what_cannot_be_an_argument_is_told(
    user: User, make_worker: Any, text: str, told: str
) -> None:
    async with user, serving(make_worker("echo", as_argument=True)):
        await user.write(text)
        assert await failure(user) == told


async def test_a_workspace_that_is_gone_is_told(
    user: User, make_worker: Any, workspace: Path
) -> None:
    async with user, serving(make_worker("cat")):
        shutil.rmtree(workspace)
        os.mkfifo(workspace)
        await user.write("hi")
        assert await failure(user) == f"not_started: the workspace is no folder: {workspace}"


async def test_children_die_with_a_turn_that_is_cancelled(user: User, make_worker: Any) -> None:
    script = "trap '' TERM; sleep 1000 & echo $! $$; wait; sleep 1000"
    async with user, serving(make_worker("sh", "-c", script, is_streaming=True)):
        await user.write("hi", "m")
        pids = (await user.event("turn.delta"))["text"].split()
        assert (await user.tell("turn.cancel", {"turn": "m"}))["content"]["message"] == "cancelled"
        for pid in pids:
            await until_gone(int(pid))


async def test_what_a_program_leaves_running_dies_with_it_and_holds_up_nothing(
    user: User, make_worker: Any
) -> None:
    async with user, serving(make_worker("sh", "-c", "sleep 1000 & echo $!")):
        await user.write("hi")
        await until_gone(int(await user.text()))


async def test_what_fled_into_a_session_of_its_own_holds_up_nothing(
    user: User, make_worker: Any
) -> None:
    async with user, serving(make_worker("sh", "-c", "setsid sleep 5 & echo done")):
        await user.write("hi")
        with anyio.fail_after(4):
            assert await user.text() == "done"


async def test_children_die_with_the_agent(user: User, make_worker: Any) -> None:
    async with user:
        async with serving(make_worker("sh", "-c", "echo $$; sleep 1000", is_streaming=True)):
            await user.write("hi", "m")
            pid = int((await user.event("turn.delta"))["text"])
        await until_gone(pid)
