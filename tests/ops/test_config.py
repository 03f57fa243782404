"""Settings: read from a file, with flags on top, and every mistake named."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from busd.errors import ConfigError
from busd.settings.config import Settings, load_settings, setting_names


def numbers(kind: type[msgspec.Struct] = Settings, prefix: str = "") -> list[tuple[str, str]]:
    """Return every setting that is a number, and how a small one of its kind is written."""
    found: list[tuple[str, str]] = []
    for field in msgspec.structs.fields(kind):
        if isinstance(field.type, type) and issubclass(field.type, msgspec.Struct):
            found += numbers(field.type, f"{field.name}.")
        elif field.type in (int, float):
            small = "1024" if field.name == "max_frame_bytes" else "1"
            found.append((prefix + field.name, small if field.type is int else "0.5"))
    return found


def write(folder: Path, text: str) -> str:
    path = folder / "busd.toml"
    path.write_text(text)
    return str(path)


def refusal(path: str | None, flags: dict[str, object] | None = None) -> str:
    with pytest.raises(ConfigError) as refused:
        load_settings(path, flags or {})
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_without_a_file_and_flags_everything_has_its_default(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert load_settings(None, {"listen": None, "loop": None}) == Settings()


def test_a_file_says_what_differs(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        """
        listen = ["unix:/tmp/a.sock"]
        policy = "strict"
        delivery.ack_seconds = 5

        [wire]
        max_frame_bytes = 4096
        """,
    )
    settings = load_settings(path, {})
    assert settings.listen == ["unix:/tmp/a.sock"]
    assert settings.policy == "strict"
    assert settings.delivery.ack_seconds == 5
    assert settings.wire.max_frame_bytes == 4096
    assert settings.wire.max_connections == Settings().wire.max_connections


def test_flags_win_over_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, 'policy = "strict"\nloop = "trio"\nlog_level = "error"\n')
    settings = load_settings(path, {"policy": "open", "loop": None, "log_level": "debug"})
    assert (settings.policy, settings.loop, settings.log_level) == ("open", "trio", "debug")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('polcy = "open"', "unknown setting 'polcy'; did you mean 'policy'?"),
        (
            "[wire]\nmax_frame_byte = 1",
            "unknown setting 'wire.max_frame_byte'; did you mean 'wire.max_frame_bytes'?",
        ),
        ("max_frame_bytes = 1", "did you mean 'wire.max_frame_bytes'?"),
        ("colour = 1", "unknown setting 'colour'"),
        ("delivery = 7", "delivery: expected `object`, got `int`"),
        ('wire.max_frame_bytes = "big"', "wire.max_frame_bytes: expected `int`, got `str`"),
        ("wire.max_frame_bytes = 1.5", "wire.max_frame_bytes: expected `int`, got `float`"),
        ("wire.max_frame_bytes = true", "wire.max_frame_bytes: expected `int`, got `bool`"),
        ('loop = "twisted"', "loop: invalid enum value 'twisted'; use uvloop, asyncio or trio"),
        ('policy = "lax"', "policy: invalid enum value 'lax'; use open or strict"),
        (
            'journal.payload = "half"',
            "journal.payload: invalid enum value 'half'; use full, head or off",
        ),
        ('listen = "unix:/x"', "listen: expected `array`, got `str`"),
        ("listen = [1]", "listen[0]: expected `str`, got `int`"),
        ("listen = []", "listen must name at least one address"),
        (
            'allowed_hosts = ["bus.example:7892"]',
            "allowed_hosts: 'bus.example:7892' must be a name, without scheme and port",
        ),
        ('listen = ["here"]', "'here' is not an address of a bus; use unix:/path"),
        ("drain_seconds = nan", "drain_seconds must be more than 0, not nan"),
        ("drain_seconds = inf", "drain_seconds must be a number, not inf"),
        ("[[grant]]\nname = 'x'", "grant 1 is for nobody: name a uid, unit, token or certificate"),
        (
            "[[grant]]\nuid = 1\nsend = ['x']",
            "unknown setting 'grant[0].send'; did you mean 'grant.send_to'?",
        ),
        ("[[grant]]\nuid = '1'", "grant[0].uid: expected `int | null`, got `str`"),
        ("[[grant]]\nuid = 1\nburst = 0", "grant[0].burst must be more than 0, not 0"),
        (
            "[workers.default]\ncomand = ['x']",
            "unknown setting 'workers.default.comand'; did you mean 'workers.command'?",
        ),
        (
            "[workers.tg]\nwhen_busy = 'no'",
            "workers.tg.when_busy: invalid enum value 'no'; use queue, interrupt, merge or reject",
        ),
        ("[workers.tg]\ncommand = 'x'", "workers.tg.command: expected `array`, got `str`"),
        ("[workers.tg]\nturn_seconds = 0", "workers.tg.turn_seconds must be more than 0, not 0"),
        ("[workers.tg]\nrestarts = -1", "workers.tg.restarts must be more than 0, not -1"),
        (
            "[workers.tg]\ncommand = ['x']\nopenai_url = 'http://x'",
            "workers.tg has command and openai_url: say only one of them",
        ),
        ("workers = 5", "workers: expected `object`, got `int`"),
        ("workers.tg = 5", "workers.tg: expected `object`, got `int`"),
        ("agents.max_workers = 0", "agents.max_workers must be more than 0, not 0"),
        (
            "plugins.disable = ['x']",
            "unknown setting 'plugins.disable'; did you mean 'plugins.disabled'?",
        ),
        ("plugins.settings = 5", "plugins.settings: expected `object`, got `int`"),
    ],
)
def test_a_mistake_is_named_with_its_key(tmp_path: Path, text: str, expected: str) -> None:
    said = refusal(write(tmp_path, text))
    assert expected in said
    assert ("did you mean" in said) == ("did you mean" in expected)


def test_workers_may_have_no_restarts_and_never_be_idle(tmp_path: Path) -> None:
    path = write(tmp_path, "[workers.default]\nrestarts = 0\nidle_seconds = 0\n")
    worker = load_settings(path).workers["default"]
    assert (worker.restarts, worker.idle_seconds) == (0, 0)


def test_plugins_can_be_disabled_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUSD_PLUGINS_DISABLED", "bub,greet")
    monkeypatch.setenv("BUSD_WORKERS", "x")  # tables are only in files
    assert load_settings().plugins.disabled == ["bub", "greet"]


def test_a_mistake_in_a_flag_is_the_command_lines() -> None:
    assert refusal(None, {"loop": "twisted"}).startswith("command line: loop: ")


def test_a_mistake_in_a_file_names_the_file(tmp_path: Path) -> None:
    path = write(tmp_path, "colour = 1")
    assert refusal(path).startswith(f"{path}: ")


def test_a_file_that_is_not_there_is_said_so(tmp_path: Path) -> None:
    path = str(tmp_path / "none.toml")
    assert refusal(path) == f"cannot read {path}: No such file or directory"


def test_a_folder_is_no_file(tmp_path: Path) -> None:
    assert refusal(str(tmp_path)) == f"cannot read {tmp_path}: Is a directory"


def test_a_file_that_is_not_toml_is_said_so_with_the_line(tmp_path: Path) -> None:
    path = write(tmp_path, "policy = open\n")
    assert refusal(path) == f"{path}: Invalid value (at line 1, column 10)"


def test_a_file_that_is_not_text_is_said_so(tmp_path: Path) -> None:
    path = tmp_path / "busd.toml"
    path.write_bytes(b"\xff\xfe")
    assert refusal(str(path)).startswith(f"{path}: ")


@pytest.mark.parametrize("value", ["0", "-1"])
@pytest.mark.parametrize("name", [name for name, _ in numbers()])
def test_a_limit_of_nothing_is_refused(tmp_path: Path, name: str, value: str) -> None:
    path = write(tmp_path, f"{name} = {value}")
    assert refusal(path).startswith(f"{path}: {name} must be more than 0, not {value}")


@pytest.mark.parametrize(("name", "value"), numbers())
def test_a_small_limit_is_taken(tmp_path: Path, name: str, value: str) -> None:
    settings: object = load_settings(write(tmp_path, f"{name} = {value}"), {})
    for part in name.split("."):
        settings = getattr(settings, part)
    assert settings == float(value)


def test_every_setting_has_one_dotted_name() -> None:
    names = setting_names()
    assert names == sorted(set(names))
    assert {"listen", "wire", "wire.max_frame_bytes", "delivery.ack_seconds"} <= set(names)
