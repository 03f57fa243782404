"""What the command line says of itself: help, completion, exit codes."""

from __future__ import annotations

import click
import pytest

from busd import (
    BusdError,
    BusUnreachable,
    CallRefused,
    ConnectionLost,
    NoAnswer,
    Refuse,
    __version__,
)
from busd.cli.main import cli, exit_code_of
from busd.errors import ConfigError, MalformedAddress, MalformedPattern
from tests.cli.terminal import Terminal


@pytest.mark.parametrize("verb", sorted(cli.commands))
def test_the_help_of_a_verb_has_an_example_and_every_option(lonely: Terminal, verb: str) -> None:
    said = lonely.busd(verb, "--help")
    assert (said.code, said.err) == (0, "")
    assert f"busd {verb} " in said.out.split("Example", 1)[1]
    for parameter in cli.commands[verb].params:
        if isinstance(parameter, click.Option) and not parameter.hidden:
            assert parameter.help, parameter.name
            for option in parameter.opts:
                assert option in said.out
    assert lonely.busd(verb, "-h") == said


def test_the_help_lists_the_verbs_and_the_exit_codes(lonely: Terminal) -> None:
    said = lonely.busd("--help")
    assert said.code == 0
    for verb in cli.commands:
        assert f"\n  {verb} " in said.out
    words = " ".join(said.out.split())
    for code, meaning in (
        (0, "done"),
        (1, "failure"),
        (2, "usage"),
        (69, "bus unreachable"),
        (75, "try again"),
        (77, "refused by rule"),
        (78, "bad configuration"),
    ):
        assert f"{code} {meaning}" in words


def test_the_version_is_that_of_the_package(lonely: Terminal) -> None:
    assert lonely.busd("--version") == (0, f"busd {__version__}\n", "")


@pytest.mark.parametrize("args", [["dance"], ["--colour"], ["status", "extra"]])
def test_a_mistake_in_typing_is_explained(lonely: Terminal, args: list[str]) -> None:
    said = lonely.busd(*args)
    assert (said.code, said.out) == (2, "")
    assert "Usage: busd" in said.err
    assert "--help" in said.err
    assert "Traceback" not in said.err


def test_no_verb_shows_the_help(lonely: Terminal) -> None:
    said = lonely.busd()
    assert said.code == 2
    assert "Commands:" in said.out + said.err


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(lonely: Terminal, shell: str) -> None:
    said = lonely.busd("completion", shell)
    assert (said.code, said.err) == (0, "")
    assert f"_BUSD_COMPLETE={shell}_complete" in said.out


def test_completion_for_another_shell_is_a_mistake_in_typing(lonely: Terminal) -> None:
    said = lonely.busd("completion", "csh")
    assert said.code == 2
    assert "'bash', 'zsh', 'fish'" in said.err


def test_the_bash_script_is_one_and_completes_verbs_and_options(lonely: Terminal) -> None:
    script = lonely.busd("completion", "bash").out
    assert lonely.run(["bash", "-n"], script) == (0, "", "")
    for typed, expected in (("se", ["send", "serve"]), ("send --wa", ["--wait"])):
        said = lonely.busd(
            _BUSD_COMPLETE="bash_complete",
            COMP_WORDS=f"busd {typed}",
            COMP_CWORD=str(len(typed.split())),
        )
        assert said.code == 0
        assert said.out.splitlines() == [f"plain,{word}" for word in expected]


@pytest.mark.parametrize(
    ("problem", "code"),
    [
        (BusdError("nobody"), 1),
        (Refuse("no"), 1),
        (CallRefused(-32603, "internal"), 1),
        (CallRefused(-32003, "not subscribed", {"rule": "subscription"}), 1),
        (MalformedAddress("malformed"), 2),
        (MalformedPattern("malformed"), 2),
        (CallRefused(-32601, "no such method", {"rule": "method"}), 2),
        (CallRefused(-32602, "malformed", {"rule": "address"}), 2),
        (CallRefused(-32602, "malformed"), 2),
        (BusUnreachable("nobody"), 69),
        (NoAnswer("late"), 75),
        (ConnectionLost("it", maybe_delivered=True), 75),
        (CallRefused(-32004, "busy", {"rule": "busy", "retrySeconds": 1}), 75),
        (CallRefused(-32004, "too many", {"rule": "grant.1.messages_per_second"}), 75),
        (CallRefused(-32602, "may not", {"rule": "grant.bridge.speak_as"}), 77),
        (CallRefused(-32005, "who are you?", {"rule": "authentication"}), 77),
        (ConfigError("bad"), 78),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, Exception) else str(value),
)
def test_the_exit_code_tells_a_script_what_to_do(problem: BusdError, code: int) -> None:
    assert exit_code_of(problem) == code
