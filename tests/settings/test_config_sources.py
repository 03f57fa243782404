"""Where settings come from: flag over environment over conf.d over file over default."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path

import pytest

from busd.bus.access import Grant
from busd.errors import ConfigError
from busd.settings.config import (
    changes,
    config_files,
    default_settings,
    keep_fixed,
    load_settings,
)
from tests.cli.terminal import Terminal

SIZE = "BUSD_WIRE_MAX_FRAME_BYTES"


class Folder:
    """A configuration folder in which files are written by their name."""

    def __init__(self, path: Path) -> None:
        self.path = path
        (path / "conf.d").mkdir(parents=True)
        self.main = str(path / "busd.toml")

    def write(self, name: str, text: str) -> str:
        (self.path / name).write_text(text)
        return str(self.path / name)


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Folder:
    """The place of the default file, empty but for conf.d; no variable is set."""
    for name in ("BUSD_CONFIG", "CONFIGURATION_DIRECTORY", SIZE):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    return Folder(tmp_path / "busd")


def refusal() -> str:
    with pytest.raises(ConfigError) as refused:
        load_settings()
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_each_source_wins_over_those_before_it(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def size(flags: dict[str, object] | None = None) -> int:
        return load_settings(None, flags).wire.max_frame_bytes

    assert size() == default_settings().wire.max_frame_bytes
    folder.write("busd.toml", "wire.max_frame_bytes = 2001")
    assert size() == 2001
    folder.write("conf.d/20-later.toml", "wire.max_frame_bytes = 2020")
    assert size() == 2020
    folder.write("conf.d/10-earlier.toml", "wire.max_frame_bytes = 2010")
    assert size() == 2020
    monkeypatch.setenv(SIZE, "2030")
    assert size() == 2030
    assert size({"wire": {"max_frame_bytes": 2040}}) == 2040


def test_a_later_source_changes_only_what_it_names(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder.write("busd.toml", 'loop = "trio"\nwire = {max_frame_bytes = 1025, max_hello_bytes = 2}')
    folder.write("conf.d/a.toml", "[wire]\nmax_frame_bytes = 1027")
    monkeypatch.setenv("BUSD_WIRE_MAX_CONNECTIONS", "4")
    settings = load_settings(None, {"policy": "open", "log_level": None})
    wire = settings.wire
    assert (wire.max_frame_bytes, wire.max_hello_bytes, wire.max_connections) == (1027, 2, 4)
    assert (settings.loop, settings.policy, settings.log_level) == ("trio", "open", "info")


def test_the_grants_of_all_files_add_up_and_are_numbered_through(folder: Folder) -> None:
    folder.write("busd.toml", "[[grant]]\nuid = 1")
    folder.write("conf.d/a.toml", '[[grant]]\nname = "bridge"\ntoken = "t"\n[[grant]]\nuid = 3')
    assert load_settings().grant == [
        Grant(name="1", uid=1),
        Grant(name="bridge", token="t"),
        Grant(name="3", uid=3),
    ]


def test_every_kind_of_value_can_come_from_the_environment(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in (
        ("BUSD_LISTEN", "unix:/tmp/a.sock,tcp://127.0.0.1:1"),
        ("BUSD_ALLOWED_ORIGINS", "https://a.example,https://b.example"),
        ("BUSD_LOOP", "asyncio"),
        ("BUSD_DRAIN_SECONDS", "0.5"),
        ("BUSD_JOURNAL_ENABLED", "false"),
        ("BUSD_DELIVERY_MAX_UNANSWERED", "7"),
    ):
        monkeypatch.setenv(name, text)
    settings = load_settings()
    assert settings.listen == ["unix:/tmp/a.sock", "tcp://127.0.0.1:1"]
    assert settings.allowed_origins == ["https://a.example", "https://b.example"]
    assert (settings.loop, settings.drain_seconds) == ("asyncio", 0.5)
    assert (settings.journal.enabled, settings.delivery.max_unanswered) == (False, 7)


@pytest.mark.parametrize("name", ["BUSD_GRANT", "BUSD_WIRE", "BUSD_ADDRESS", "BUSD_GRANT_UID"])
def test_a_variable_that_is_no_setting_is_left_alone(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv(name, "x")
    assert load_settings() == default_settings()


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (SIZE, "big", "environment: wire.max_frame_bytes must be an integer, not 'big'"),
        (SIZE, "0", "environment: wire.max_frame_bytes must be 1024 or more, not 0"),
        ("BUSD_LOOP", "twisted", "loop must be asyncio, trio or uvloop, not"),
        ("BUSD_LISTEN", "here", "environment: 'here' is not an address of a bus"),
        (
            "BUSD_JOURNAL_ENABLED",
            "perhaps",
            "environment: journal.enabled must be true or false, not 'perhaps'",
        ),
    ],
)
def test_a_mistake_in_the_environment_is_said_to_be_there(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, name: str, text: str, expected: str
) -> None:
    monkeypatch.setenv(name, text)
    said = refusal()
    assert said.startswith("environment: ")
    assert expected in said


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('polcy = "open"', "unknown setting 'polcy'; did you mean 'policy'?"),
        ('policy = "lax"', "policy must be open or strict, not 'lax'"),
        ("wire.max_frame_bytes = 0", "wire.max_frame_bytes must be 1024 or more, not 0"),
        ('wire.max_frame_bytes = "1"', "wire.max_frame_bytes must be an integer, not '1'"),
        ("[[grant]]", "grant 1 is for nobody: name a uid, unit, token or certificate"),
        (
            '[[grant]]\nuid = 1\nsend_to = ["agent *"]',
            "grant 1: send_to: malformed pattern: 'agent *' has spaces or unprintable characters",
        ),
        ("listen = []", "listen must name at least one address"),
        ("policy = ", "Invalid value (at end of document)"),
    ],
)
def test_a_mistake_in_conf_d_names_that_file(folder: Folder, text: str, expected: str) -> None:
    folder.write("busd.toml", 'policy = "strict"')
    folder.write("conf.d/10-good.toml", "drain_seconds = 1")
    bad = folder.write("conf.d/20-bad.toml", text)
    folder.write("conf.d/30-good.toml", "drain_seconds = 2")
    assert refusal() == f"{bad}: {expected}"


def test_only_toml_files_of_conf_d_are_read_in_the_order_of_their_names(folder: Folder) -> None:
    names = [folder.write(f"conf.d/{name}.toml", "") for name in ("b", "a", "10", "9")]
    folder.write("conf.d/a.toml.bak", "nonsense")
    folder.write("conf.d/README", "nonsense")
    assert [str(path) for path in config_files(None)] == sorted(names)


def test_a_file_that_is_named_must_be_there_the_default_one_need_not(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_settings() == default_settings()
    monkeypatch.setenv("BUSD_CONFIG", folder.main)
    assert refusal() == f"cannot read {folder.main}: No such file or directory"
    folder.write("busd.toml", "drain_seconds = 3")
    assert load_settings().drain_seconds == 3


def test_systemd_says_where_the_configuration_is(
    folder: Folder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    other = Folder(tmp_path / "given")
    other.write("busd.toml", "drain_seconds = 4")
    monkeypatch.setenv("CONFIGURATION_DIRECTORY", f"{other.path}:/elsewhere")
    assert load_settings().drain_seconds == 4


# What a reload can do


def test_relative_folders_are_those_of_the_current_folder(
    folder: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder.path)
    folder.write("busd.toml", 'state = "here"\n[plugins]\nfolders = ["mine", "~/theirs"]\n')
    settings = load_settings(folder.main)
    assert settings.state == str(folder.path / "here")
    assert settings.plugins.folders == [str(folder.path / "mine"), "~/theirs"]


def test_changes_are_named_as_an_operator_writes_them(folder: Folder) -> None:
    folder.write("busd.toml", "wire.ping_seconds = 1\njournal.keep_days = 2\n[[grant]]\nuid = 1")
    assert changes(default_settings(), load_settings()) == [
        "wire.ping_seconds",
        "journal.keep_days",
        "grant",
    ]
    assert changes(default_settings(), default_settings()) == []


def test_what_needs_a_restart_stays_as_it_was(folder: Folder) -> None:
    folder.write(
        "busd.toml",
        'listen = ["unix:/x"]\nstate = "/x"\nloop = "trio"\nlog_level = "error"\n'
        'policy = "open"\njournal.enabled = false\njournal.keep_days = 1',
    )
    old, new = default_settings(), load_settings()
    kept = keep_fixed(old, new)
    assert changes(old, kept) == ["policy", "journal.keep_days"]
    assert changes(kept, new) == ["listen", "state", "loop", "log_level", "journal.enabled"]


# busd config


def test_config_check_names_the_files_it_read(tmp_path: Path, lonely: Terminal) -> None:
    lonely.environment["XDG_CONFIG_HOME"] = str(tmp_path)
    assert lonely.busd("config", "check") == (0, "ok: no file, only defaults\n", "")
    folder = Folder(tmp_path / "busd")
    files = [folder.write("busd.toml", ""), folder.write("conf.d/a.toml", "")]
    assert lonely.busd("config", "check") == (0, f"ok: {' '.join(files)}\n", "")
    said = lonely.busd("config", "check", "--json")
    assert json.loads(said.out) == {"ok": True, "files": files, "warnings": []}


@pytest.mark.parametrize("verb", ["check", "show"])
def test_config_says_what_is_wrong_in_one_line_and_exits_with_78(
    tmp_path: Path, lonely: Terminal, verb: str
) -> None:
    folder = Folder(tmp_path / "busd")
    folder.write("busd.toml", "")
    bad = folder.write("conf.d/bad.toml", "wire.max_frame_byte = 1")
    said = lonely.busd("config", verb, "--config", folder.main)
    hint = "did you mean 'wire.max_frame_bytes'?"
    problem = f"busd: {bad}: unknown setting 'wire.max_frame_byte'; {hint}\n"
    assert said == (78, "", problem)
    assert lonely.busd("serve", "--config", folder.main) == (78, "", problem)
    said = lonely.busd("config", verb, BUSD_LOOP="twisted")
    assert (said.code, said.out) == (78, "")
    assert said.err.startswith("busd: environment: loop must be ")


def test_what_config_show_prints_is_a_file_that_says_the_same(
    tmp_path: Path, lonely: Terminal
) -> None:
    folder = Folder(tmp_path / "busd")
    folder.write(
        "busd.toml",
        """
        state = "/tmp/state"
        listen = ["unix:/tmp/ä \\" b.sock"]
        drain_seconds = 2.5
        wire.max_frame_bytes = 3000
        [[grant]]
        uid = 1000
        send_to = ["agent:*"]
        messages_per_second = 0.5
        [[grant]]
        name = "bridge"
        token = "t"
        """,
    )
    said = lonely.busd("config", "show", "--config", folder.main)
    assert (said.code, said.err) == (0, "")
    assert tomllib.loads(said.out)["wire"]["max_frame_bytes"] == 3000
    shown = tmp_path / "shown.toml"
    shown.write_text(said.out)
    assert load_settings(str(shown)) == load_settings(folder.main)
    said = lonely.busd("config", "show", "--json", "--config", folder.main, **{SIZE: "2000"})
    assert json.loads(said.out)["wire"]["max_frame_bytes"] == 2000
