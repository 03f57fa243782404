"""`busd doctor` beside a running bus: it checks what is in use and names what does not work."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from busd import SyncClient
from busd.ops.control import MailAbout
from busd.ops.doctor_bus import check_mail
from busd.ops.mail_admin import MailboxSummary
from tests.cli.terminal import BUSD, Terminal
from tests.daemons import PATIENCE_SECONDS, Daemon, open_daemon
from tests.plugin.sources import GREET

MISSING = "program 'no-such-llm' not found in PATH"


class Patient:
    """A user with a bus, and what the doctor tells them."""

    def __init__(self, folder: Path, address: str = "") -> None:
        self.terminal = Terminal(folder, address)
        self.terminal.environment["XDG_CONFIG_HOME"] = str(folder / "config")
        self.config = folder / "config/busd/busd.toml"
        self.config.parent.mkdir(parents=True)

    def examine(self, *args: str, **environment: str) -> tuple[int, list[dict[str, str]]]:
        """Return the exit code and all that is not fine."""
        said = self.terminal.busd("doctor", "--user", "--json", *args, **environment)
        assert said.err == ""
        return said.code, [json.loads(line) for line in said.out.splitlines()]

    def complaints(self, *args: str, **environment: str) -> tuple[int, list[tuple[str, str]]]:
        code, findings = self.examine(*args, **environment)
        # What this machine is like is not what these tests are about.
        about_host = ("file limit", "clock", "free space", "systemd", "lingering")
        found = [each for each in findings if each["item"] not in about_host]
        return code, [(each["level"], each["says"]) for each in found if each["level"] != "ok"]


@pytest.fixture
def patient(tmp_path: Path) -> Patient:
    return Patient(tmp_path)


def reload(daemon: Daemon, folder: Path) -> None:
    Terminal(folder, f"unix:{daemon.path}").busd("reload")


def test_a_default_address_that_the_bus_does_not_use_is_not_checked(patient: Patient) -> None:
    with open_daemon("uvloop") as daemon:
        code, findings = patient.examine("--address", f"unix:{daemon.path}")
        sockets = [each["says"] for each in findings if each["item"] == "socket"]
        tcp = f"tcp://127.0.0.1:{daemon.port} is open"  # its port is known to the bus alone
        assert (code, sockets) == (0, [f"unix:{daemon.path} is open", tcp])
        [(level, says)] = patient.complaints("--address", f"unix:{daemon.path}")[1]
        assert level == "warning"
        assert says.startswith("clients look for a bus at unix:")
        assert patient.complaints(BUSD_ADDRESS=f"unix:{daemon.path}") == (0, [])


def test_the_bus_is_looked_for_where_the_settings_say(patient: Patient) -> None:
    with open_daemon("uvloop") as daemon:
        patient.config.write_text(f'listen = ["unix:{daemon.path}"]\n')
        code, findings = patient.examine()
        assert code == 0
        [bus] = [each for each in findings if each["item"] == "bus" and each["level"] == "ok"]
        assert bus["says"].startswith(f"the bus at unix:{daemon.path} answers in ")


def test_an_address_without_a_bus_is_the_only_complaint(patient: Patient, tmp_path: Path) -> None:
    where = f"unix:{tmp_path}/other.sock"
    code, found = patient.complaints("--address", where)
    assert (code, found) == (1, [("problem", f'no bus at {where}; start one with "busd serve"')])


def test_faulty_and_outdated_plugins_are_named(patient: Patient, tmp_path: Path) -> None:
    folder = tmp_path / "plugins"
    folder.mkdir()
    (folder / "broken.py").write_text("import no_such_module\n")
    (folder / "greet.py").write_text(GREET)
    with open_daemon("uvloop", {"plugins.folders": [str(folder)]}) as daemon:
        daemon.is_blamed = True  # its log has the tracebacks
        (folder / "greet.py").write_text("def f(:\n")
        reload(daemon, tmp_path)
        code, findings = patient.examine(BUSD_ADDRESS=f"unix:{daemon.path}")
        broken, greet = [each for each in findings if each["item"].startswith("plugin ")]
        assert code == 1
        assert broken["item"] == "plugin broken"
        assert broken["says"].startswith("does not run: import failed: ModuleNotFoundError: ")
        assert broken["fix"].startswith(f"fix {folder}/broken.py, or add 'broken' to ")
        assert greet["says"].startswith(
            "the version from before its files changed still runs: import"
        )


def test_a_refused_reload_is_a_problem(patient: Patient, tmp_path: Path) -> None:
    with open_daemon("uvloop") as daemon:
        daemon.is_blamed = True
        (daemon.folder / "busd.toml").write_text("loopp = 1\n")
        reload(daemon, tmp_path)
        code, [(level, says)] = patient.complaints(BUSD_ADDRESS=f"unix:{daemon.path}")
        assert (code, level) == (1, "problem")
        assert says.startswith("the last reload was refused, the older settings are in use: ")


@pytest.mark.parametrize("key", ["command", "agent"])
def test_a_worker_program_that_is_not_there_is_named(patient: Patient, key: str) -> None:
    settings = {f"workers.default.{key}": ["no-such-llm"]}
    complaint = ("problem", f"workers.default.{key}: {MISSING}")
    with open_daemon("uvloop", settings) as daemon:
        code, found = patient.complaints(BUSD_ADDRESS=f"unix:{daemon.path}")
        assert (code, found) == (1, [complaint])  # as the bus sees it
    patient.config.write_text(f'workers.default.{key} = ["no-such-llm"]\n')
    assert complaint in patient.complaints()[1]  # and without a bus
    with open_daemon("uvloop") as daemon:  # one that has not read it yet
        code, [(level, says)] = patient.complaints(BUSD_ADDRESS=f"unix:{daemon.path}")
        assert (code, level) == (0, "warning")
        assert says == f"workers.default.{key}: {MISSING}; the running bus does not report this"


def test_an_extra_that_is_not_installed_is_named(patient: Patient, tmp_path: Path) -> None:
    path = without_httpx(tmp_path, patient.terminal)
    patient.config.write_text(
        'workers.default = {openai_url = "http://127.0.0.1:1/v1", model = "m"}\n'
    )
    complaint = "workers.default.openai_url needs httpx, which is not installed"
    code, findings = patient.examine(PYTHONPATH=path)
    [found] = [each for each in findings if each["item"] == "workers"]
    assert (code, found["level"], found["says"]) == (1, "problem", complaint)
    assert found["fix"].endswith("-m pip install 'busd[openai]'")
    checked = patient.terminal.busd("config", "check", PYTHONPATH=path)
    assert (checked.code, checked.err) == (0, f"warning: {complaint}; {found['fix']}\n")
    assert patient.terminal.busd("config", "check").err == ""


def without_httpx(folder: Path, terminal: Terminal) -> str:
    """Return a PYTHONPATH with which httpx is not installed."""
    (folder / "sitecustomize.py").write_text("import sys\nsys.modules['httpx'] = None\n")
    return f"{folder}:{terminal.environment['PYTHONPATH']}"


@pytest.mark.parametrize(
    ("lines", "warning"),
    [
        (
            'command = ["no-such-llm", "-x"]',
            f"workers.tg.command: {MISSING}; install it, or change workers.tg.command",
        ),
        (
            'agent = ["/no/such/agent"]',
            "workers.tg.agent: program /no/such/agent does not exist; "
            "install it, or change workers.tg.agent",
        ),
        (
            'agent = ["/etc/passwd"]',
            "workers.tg.agent: /etc/passwd cannot be executed; "
            "install it, or change workers.tg.agent",
        ),
        (
            'command = ["cat"]\nenvironment = {PATH = "/no/such/folder"}',
            "workers.tg.command: program 'cat' not found in PATH; "
            "install it, or change workers.tg.command",
        ),
        (
            'openai_url = "http://127.0.0.1:1/v1"',
            "workers.tg: an openai_url needs a model; change the table workers.tg",
        ),
        ('command = ["cat"]', ""),
        ('command = ["./of-the-workspace"]', ""),
    ],
)
def test_config_check_says_that_a_worker_cannot_start(
    patient: Patient, lines: str, warning: str
) -> None:
    patient.config.write_text(f"[workers.tg]\n{lines}\n")
    said = patient.terminal.busd("config", "check")
    assert (said.code, said.out) == (0, f"ok: {patient.config}\n")
    assert said.err == (f"warning: {warning}\n" if warning else "")


def as_user() -> list[str]:
    """Return what runs a command as somebody who is not root."""
    if os.geteuid() != 0:
        return []
    words = ["unshare", "--user", "--map-user=1000", "--"]
    if shutil.which("unshare") and not subprocess.run([*words, "true"], check=False).returncode:
        return words
    pytest.skip("root cannot be another user here")


def test_the_doctor_is_content_with_the_bus_of_a_user_without_systemd_and_runtime_folder(
    opened: ExitStack,
) -> None:
    user = as_user()
    home = Path(tempfile.mkdtemp(prefix="busd-test-"))  # short: the path of a socket has a limit
    opened.callback(shutil.rmtree, home)
    terminal = Terminal(home)
    for name in ("XDG_RUNTIME_DIR", "XDG_STATE_HOME"):
        del terminal.environment[name]
    terminal.environment["BUSD_LOG_LEVEL"] = "warning"
    folder = home / ".local/state/busd"
    unix = f"unix:{folder}/run/bus.sock"
    serve = ["serve", "--json", "--listen", unix, "--listen", "tcp://127.0.0.1:0"]
    with terminal.start_any([*user, *BUSD, *serve]) as running:
        assert unix in running.stdout.readline(), running.stderr.read()
        said = terminal.run([*user, *BUSD, "doctor"])
        assert (said.code, said.err) == (0, ""), said.out
        assert f"ok       socket: {unix} is open\n" in said.out
        assert f"ok       state directory: {folder} is private\n" in said.out
        assert "problem" not in said.out
        assert terminal.run([*user, *BUSD, "stop"]).code == 0
        assert running.process.wait(PATIENCE_SECONDS) == 0


# Mail


def about(**members: Any) -> MailAbout:
    limits = {"box_count": 10, "box_bytes": 1_000, "total_count": 100, "total_bytes": 10_000}
    facts: dict[str, Any] = {"count": 0, "bytes": 0, "dead": 0, "dead_bytes": 0}
    return MailAbout(**{**facts, "is_failing": False, **limits, **members})


def mailbox(address: str, count: int, size: int) -> MailboxSummary:
    return MailboxSummary(address, count, size, None, 0, 0, [])


def levels(mail: MailAbout, *mailboxes: MailboxSummary) -> list[tuple[str, str]]:
    return [(each.level, each.says) for each in check_mail(mail, list(mailboxes))]


def test_mail_that_waits_is_fine() -> None:
    found = levels(about(count=3), mailbox("agent:a", 9, 900))
    assert found == [("ok", "3 messages wait, none was given up")]


def test_a_disk_that_cannot_be_written_is_a_problem() -> None:
    [(level, says)] = levels(about(is_failing=True))
    assert (level, says) == ("problem", "mail cannot be written: durable messages are refused")


def test_dead_letters_are_worth_a_warning() -> None:
    assert levels(about(dead=1)) == [("warning", "1 dead letter: messages that were given up")]
    assert levels(about(dead=2)) == [("warning", "2 dead letters: messages that were given up")]


@pytest.mark.parametrize(("count", "size"), [(10, 0), (1, 901)])
def test_a_mailbox_that_is_nearly_full_is_named(count: int, size: int) -> None:
    found = levels(about(), mailbox("agent:a", count, size), mailbox("agent:b", 9, 900))
    assert found == [("warning", "the mailbox of agent:a is over 90% of its limit")]


def test_many_full_mailboxes_are_counted() -> None:
    *named, (_, last) = levels(about(), *(mailbox(f"agent:{n}", 10, 0) for n in range(12)))
    assert (len(named), last) == (5, "7 more mailboxes are over 90% of their limit")


def test_all_mailboxes_together_may_be_nearly_full() -> None:
    assert levels(about(count=91)) == [
        ("warning", "the mailboxes together are over 90% of their limit")
    ]


def test_the_doctor_asks_a_bus_for_its_mail(patient: Patient) -> None:
    with open_daemon("uvloop", {"mail.box_count": 1}) as daemon:
        address = f"unix:{daemon.path}"
        with SyncClient("ann", address=address) as ann:
            ann.send("agent:away", {}, durable=True)
        code, complaints = patient.complaints("--address", address)
    assert code == 0
    assert ("warning", "the mailbox of agent:away is over 90% of its limit") in complaints
