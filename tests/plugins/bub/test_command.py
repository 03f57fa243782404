"""The command line of a worker."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from busd.errors import ConfigError
from busd_plugins.bub.settings import WorkerSettings
from busd_plugins.bub.starting import worker_command

WHO = ["--client-id", "agent:w", "--talkto", "tg:1", "--workspace", "/w", "--reply-type", "web"]
BUSD = [sys.executable, "-m", "busd", "worker", *WHO]


def command_of(settings: WorkerSettings) -> list[str]:
    return worker_command(settings, "agent:w", "tg:1", Path("/w"), "web")


def test_a_worker_without_a_program_is_the_echo() -> None:
    assert command_of(WorkerSettings()) == [
        *BUSD, "--when-busy", "queue", "--seconds", "300", "--echo",
    ]  # fmt: skip


def test_a_program_of_ones_own_gets_the_four_flags_and_nothing_else() -> None:
    assert command_of(WorkerSettings(agent=["my-agent", "--fast"])) == ["my-agent", "--fast", *WHO]


def test_a_command_stands_last_whatever_it_is_called() -> None:
    settings = WorkerSettings(command=["--odd", "-x"], stream=True, pass_text="argument")
    assert command_of(settings)[len(BUSD) + 4 :] == [
        "--stream", "--arg", "--exec", "--", "--odd", "-x",
    ]  # fmt: skip


def test_a_persistent_command_says_how_it_speaks() -> None:
    settings = WorkerSettings(command=["llm", "chat"], persistent="lines", prompt="> ", until="-")
    assert command_of(settings)[len(BUSD) + 4 :] == [
        "--persistent", "lines", "--prompt=> ", "--until=-", "--exec", "--", "llm", "chat",
    ]  # fmt: skip


def test_an_endpoint_is_named_with_its_model() -> None:
    settings = WorkerSettings(openai_url="http://localhost/v1?api-version=2", model="m")
    assert command_of(settings)[len(BUSD) + 4 :] == [
        "--openai", "http://localhost/v1?api-version=2", "--model", "m",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "url",
    [
        "https://me:word@host/v1",
        "https://word@host/v1",
        "https://h/v1?key=word",
        "https://h?TOKEN=",
    ],
)
def test_a_secret_in_the_url_is_never_put_on_the_command_line(url: str) -> None:
    with pytest.raises(ConfigError, match="OPENAI_API_KEY") as refused:
        command_of(WorkerSettings(openai_url=url, model="m"))
    assert "word" not in str(refused.value)


def test_a_url_that_cannot_be_read_is_a_bad_setting() -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        command_of(WorkerSettings(openai_url="http://[::1/v1", model="m"))
