"""The tables of bridges: what is refused, with what should be there, and what is doubted."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

import pytest

from busd.bridge.settings import BridgeTable, find_bridge_doubts, find_file_doubts
from busd.errors import ConfigError
from busd.plugin.host import PluginSettings
from busd.settings.config import load_settings
from busd.settings.doubts import find_doubts
from busd_plugins.bridges.processes import hand_over_secret
from busd_plugins.telegram.settings import TelegramTable

LIMITS = PluginSettings()


class OddTable(BridgeTable, frozen=True, kw_only=True):
    """A bridge that needs a package that there is not."""

    packages: ClassVar[dict[str, str]] = {"no_such_module": "no-such-package"}
    extra: ClassVar[str] = "odd"
    name: str = "odd-bridge"
    prefix: str = "odd"


def write(folder: Path, text: str) -> str:
    path = folder / "busd.toml"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            '[bridges.telegram]\ntoken_fil = "/x"',
            "unknown setting 'bridges.telegram.token_fil'; "
            "did you mean 'bridges.telegram.token_file'?",
        ),
        (
            "[bridges.telegramm]",
            "unknown setting 'bridges.telegramm'; did you mean 'bridges.telegram'?",
        ),
        (
            '[bridges.telegram]\ntoken_file = "token"',
            "bridges.telegram.token_file: 'token' must be an absolute path",
        ),
        (
            '[bridges.telegram]\nallow_users = ["ann"]',
            "bridges.telegram.allow_users[0] must be an integer, not 'ann'",
        ),
        (
            '[bridges.telegram]\nmode = "push"',
            "bridges.telegram.mode must be polling or webhook, not 'push'",
        ),
        (
            '[bridges.telegram]\nmode = "webhook"',
            'bridges.telegram.webhook_url must begin with https:// if mode is "webhook"',
        ),
        (
            '[bridges.telegram]\napi_base = "localhost:8081"',
            "bridges.telegram.api_base: 'localhost:8081' must begin with https://",
        ),
        (
            '[bridges.telegram]\nname = "tg:1"',
            "bridges.telegram.name: 'tg:1' must be a word without a prefix",
        ),
        (
            '[bridges.telegram]\nprefix = "tg:"',
            "bridges.telegram.prefix: 'tg:' must be like tg: letters and digits",
        ),
        (
            '[bridges.telegram]\nprefix = "telegram"',
            "bridges.telegram.prefix: 'telegram' is a channel; its prefix is tg",
        ),
        (
            '[bridges.discord]\nprefix = "agent"',
            "bridges.discord.prefix: agent: is no address of a chat; choose another word",
        ),
        (
            '[bridges.discord]\ngateway_url = "https://discord.example"',
            "bridges.discord.gateway_url: 'https://discord.example' must begin with wss://",
        ),
        ('[bridges.hook]\npath = "hook"', "bridges.hook.path: 'hook' must be like /hook"),
        (
            '[bridges.hook.secrets]\nci = "ci.secret"',
            "bridges.hook.secrets.ci: 'ci.secret' must be an absolute path",
        ),
        ("[bridges.programs.irc]", "bridges.programs.irc.command is required"),
        (
            "[bridges.programs.irc]\ncommand = []",
            "bridges.programs.irc.command must name a program",
        ),
        (
            '[bridges.programs.hook]\ncommand = ["true"]',
            "bridges.programs.hook: 'hook' cannot be its name; choose another word",
        ),
        (
            '[bridges.programs."../irc"]\ncommand = ["true"]',
            "bridges.programs.../irc: '../irc' cannot be its name; choose another word",
        ),
        (
            '[bridges.programs.a]\ncommand = ["true"]\nname = "x"\n'
            '[bridges.programs.b]\ncommand = ["true"]\nname = "x"',
            "bridges.programs.b.name: bridges.programs.a is called 'x', too",
        ),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, words: str) -> None:
    path = write(tmp_path, text)
    with pytest.raises(ConfigError) as refused:
        load_settings(path)
    assert str(refused.value) == f"{path}: {words}"


def test_a_missing_table_is_no_bridge_and_has_no_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BUSD_BRIDGES_TELEGRAM_TOKEN_FILE", "/x")
    settings = load_settings(write(tmp_path, ""))
    assert settings.bridges.telegram is None  # type: ignore[attr-defined]  # a plugin declares it
    [doubt] = find_doubts(settings)
    assert doubt.says.endswith("is ignored: only a file can say bridges.telegram.token_file")


def test_a_bot_without_a_token_or_that_everybody_may_use_is_doubtful(tmp_path: Path) -> None:
    path = write(tmp_path, "[bridges.telegram]")
    says = [doubt.says for doubt in find_doubts(load_settings(path))]
    assert "bridges.telegram has no token" in says
    everybody = "bridges.telegram: everybody on Telegram who finds the bot may talk to your agents"
    assert everybody in says
    path = write(tmp_path, "[bridges.telegram]\nenabled = false\n[bridges.discord]\nenabled=false")
    assert list(find_doubts(load_settings(path))) == []


def test_a_webhook_that_knows_nobody_and_a_program_that_is_missing_are_doubtful(
    tmp_path: Path,
) -> None:
    text = '[bridges.hook]\n[bridges.programs.irc]\ncommand = ["no-such-irc"]'
    says = [doubt.says for doubt in find_doubts(load_settings(write(tmp_path, text)))]
    assert says == [
        "bridges.programs.irc.command: program 'no-such-irc' not found in PATH",
        "bridges.hook refuses every message: it knows no caller",
    ]


def test_a_package_that_is_missing_is_named_with_the_command_that_installs_it() -> None:
    [doubt] = find_bridge_doubts("bridges.odd", OddTable(), LIMITS)
    assert doubt.says == "bridges.odd needs no-such-package, which is not installed"
    assert doubt.fix == "run: pip install 'busd[odd]'"


def test_a_bridge_that_would_outlive_the_bus_is_doubtful() -> None:
    table = OddTable(stop_seconds=LIMITS.stop_seconds)
    late, _ = find_bridge_doubts("bridges.odd", table, LIMITS)
    assert late.says.startswith("bridges.odd.stop_seconds is 10 and plugins.stop_seconds only 10")


@pytest.mark.parametrize(
    ("mode", "words"),
    [
        (None, "No such file or directory"),
        (0o644, "everybody may read"),
        (0o620, "may write"),
        (0o600, ""),
        (0o640, ""),  # a group that its owner chose
    ],
)
def test_a_file_with_a_secret_must_be_there_and_private(
    tmp_path: Path, mode: int | None, words: str
) -> None:
    file = tmp_path / "token"
    if mode is not None:
        file.write_text("123:abc")
        file.chmod(mode)
    says = [doubt.says for doubt in find_file_doubts("token_file", file)]
    assert len(says) == bool(words)
    assert all(words in each for each in says)


def test_a_secret_is_handed_over_by_a_credential_only(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("CREDENTIALS_DIRECTORY", raising=False)
    table = TelegramTable()
    assert hand_over_secret(table, tmp_path) == ({}, {})
    monkeypatch.setenv("TELEGRAM_TOKEN", "123:abc")
    file = str(tmp_path / "TELEGRAM_TOKEN")
    assert hand_over_secret(table, tmp_path) == (
        {"TELEGRAM_TOKEN": file},
        {"TELEGRAM_TOKEN": b"123:abc"},
    )
    given = tmp_path / "given/TELEGRAM_TOKEN"
    given.parent.mkdir()
    given.write_text("123:abc")
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(given.parent))
    assert hand_over_secret(table, tmp_path) == ({"TELEGRAM_TOKEN": str(given)}, {})
    own = TelegramTable(token_file="/etc/telegram.token")
    assert hand_over_secret(own, tmp_path) == ({}, {})
