"""Settings: read from a file, with flags on top, and every mistake named."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from msgspec import inspect

from busd.errors import ConfigError
from busd.plugin.declared import read_tables
from busd.settings.config import default_settings, load_settings, setting_names, settings_kind
from busd.struct_faults import bare
from busd_plugins.bub.settings import BubSettings


def numbers() -> list[tuple[str, int, str]]:
    """Return every number that the environment can set too, the bound below it, a small one."""
    found: list[tuple[str, int, str]] = []
    for name, kind in numbers_of(inspect.type_info(settings_kind())):
        bound = kind.ge if kind.gt is None else kind.gt
        assert bound is not None, f"{name} has no lower bound"
        assert kind.le is not None, f"{name} has no upper bound"
        small = max(int(bound), 1) if isinstance(kind, inspect.IntType) else 0.5
        found.append((name, int(bound), str(small)))
    return found


def numbers_of(
    kind: inspect.Type, prefix: str = ""
) -> Iterator[tuple[str, inspect.IntType | inspect.FloatType]]:
    if isinstance(kind, inspect.StructType):
        for field in kind.fields:
            yield from numbers_of(
                bare(field.type), f"{prefix}.{field.name}" if prefix else field.name
            )
    elif isinstance(kind, inspect.IntType | inspect.FloatType):
        yield prefix, kind


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
    assert load_settings(None, {"listen": None, "loop": None}) == default_settings()


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
    assert settings.wire.max_connections == default_settings().wire.max_connections


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
        ("delivery = 7", "delivery must be a table, not 7"),
        ('wire.max_frame_bytes = "big"', "wire.max_frame_bytes must be an integer, not 'big'"),
        ("wire.max_frame_bytes = 1.5", "wire.max_frame_bytes must be an integer, not 1.5"),
        ("wire.max_frame_bytes = true", "wire.max_frame_bytes must be an integer, not true"),
        ('loop = "twisted"', "loop must be asyncio, trio or uvloop, not 'twisted'"),
        ('policy = "lax"', "policy must be open or strict, not 'lax'"),
        (
            'journal.payload = "half"',
            "journal.payload must be full, head or off, not 'half'",
        ),
        ('listen = "unix:/x"', "listen must be an array, not 'unix:/x'"),
        ("listen = [1]", "listen[0] must be a string, not 1"),
        ("listen = []", "listen must name at least one address"),
        (
            'allowed_hosts = ["bus.example:7892"]',
            "allowed_hosts: 'bus.example:7892' must be a name, without scheme and port",
        ),
        ('listen = ["here"]', "'here' is not an address of a bus; use unix:/path"),
        ("drain_seconds = nan", "drain_seconds must be more than 0, not nan"),
        ("drain_seconds = inf", "drain_seconds must be 31622400 (a year) or less, not inf"),
        ("[[grant]]\nname = 'x'", "grant 1 is for nobody: name a uid, unit, token or certificate"),
        (
            "[[grant]]\nuid = 1\nsend = ['x']",
            "unknown setting 'grant[0].send'; did you mean 'grant.send_to'?",
        ),
        ("[[grant]]\nuid = '1'", "grant[0].uid must be an integer, not '1'"),
        ("[[grant]]\nuid = 1\nburst = 0", "grant[0].burst must be more than 0, not 0"),
        (
            "[workers.default]\ncomand = ['x']",
            "unknown setting 'workers.default.comand'; did you mean 'workers.command'?",
        ),
        (
            "[workers.tg]\nwhen_busy = 'no'",
            "workers.tg.when_busy must be interrupt, merge, queue or reject, not 'no'",
        ),
        ("[workers.tg]\ncommand = 'x'", "workers.tg.command must be an array, not 'x'"),
        ("[workers.tg]\nturn_seconds = 0", "workers.tg.turn_seconds must be more than 0, not 0"),
        ("[workers.tg]\nrestarts = -1", "workers.tg.restarts must be 0 or more, not -1"),
        (
            "[workers.tg]\ncommand = ['x']\nopenai_url = 'http://x'",
            "workers.tg has command and openai_url: say only one of them",
        ),
        ("workers = 5", "workers must be a table, not 5"),
        ("workers.tg = 5", "workers.tg must be a table, not 5"),
        ("agents.max_workers = 0", "agents.max_workers must be more than 0, not 0"),
        (
            "plugins.disable = ['x']",
            "unknown setting 'plugins.disable'; did you mean 'plugins.disabled'?",
        ),
        ("plugins.settings = 5", "plugins.settings must be a table, not 5"),
        ("plugins.settings.x = [1]", "plugins.settings.x must be a table, not an array"),
        ("[[grant]]\nuid = -1", "grant[0].uid must be 0 or more, not -1"),
        (
            "[[grant]]\nuid = 1\nmessages_per_second = nan",
            "grant[0].messages_per_second must be more than 0, not nan",
        ),
        (
            "[[grant]]\nuid = 1\nmax_frame_bytes = -1",
            "grant[0].max_frame_bytes must be 1024 or more, not -1",
        ),
        ("quota.unknown_share = 2", "quota.unknown_share must be 1 or less, not 2.0"),
        ("agents.cpu_percent = 200_000", "must be 100000 (1000 cores) or less, not 200000"),
    ],
)
def test_a_mistake_is_named_with_its_key(tmp_path: Path, text: str, expected: str) -> None:
    said = refusal(write(tmp_path, text))
    assert expected in said
    assert ("did you mean" in said) == ("did you mean" in expected)


def test_workers_may_have_no_restarts_and_never_be_idle(tmp_path: Path) -> None:
    path = write(tmp_path, "[workers.default]\nrestarts = 0\nidle_seconds = 0\n")
    worker = read_tables(load_settings(path), BubSettings).workers["default"]
    assert (worker.restarts, worker.idle_seconds) == (0, 0)


def test_plugins_can_be_disabled_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BUSD_PLUGINS_DISABLED", "bub,greet")
    monkeypatch.setenv("BUSD_WORKERS", "x")  # tables are only in files
    assert load_settings().plugins.disabled == ["bub", "greet"]


def test_a_mistake_in_a_flag_is_the_command_lines() -> None:
    assert refusal(None, {"loop": "twisted"}).startswith("command line: loop must be ")


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


# Zero means that there is no such limit.
MAY_BE_ZERO = ("loops.max_hops", "loops.max_cycle_messages")


@pytest.mark.parametrize("value", ["0", "-1"])
@pytest.mark.parametrize(("name", "bound"), [each[:2] for each in numbers()])
def test_a_limit_of_nothing_is_refused(tmp_path: Path, name: str, bound: int, value: str) -> None:
    path = write(tmp_path, f"{name} = {value}")
    if name in MAY_BE_ZERO and value == "0":
        load_settings(path)
        return
    rule = f"{bound} or more" if bound or name in MAY_BE_ZERO else "more than 0"
    assert refusal(path).startswith(f"{path}: {name} must be {rule}, not {value}")


@pytest.mark.parametrize(("name", "value"), [(name, value) for name, _, value in numbers()])
def test_a_small_limit_is_taken(tmp_path: Path, name: str, value: str) -> None:
    settings: object = load_settings(write(tmp_path, f"{name} = {value}"), {})
    for part in name.split("."):
        settings = getattr(settings, part)
    assert settings == float(value)


def test_every_setting_has_one_dotted_name() -> None:
    names = setting_names()
    assert names == sorted(set(names))
    assert {"listen", "wire", "wire.max_frame_bytes", "delivery.ack_seconds"} <= set(names)
