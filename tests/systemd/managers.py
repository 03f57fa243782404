"""Real service managers for the tests, as plain processes: nothing of this host is touched.

A user's manager runs in folders of its own, and if root runs the tests with a /run/systemd of its
own, so that nothing depends on whether this host has systemd, or pretends to. A system's manager
runs in namespaces of its own, with an empty /run, /etc/systemd, /var/lib and network; only root can
make these. Each runs in a control group of its own, or not at all, and gets nothing of our
environment but the PATH: other managers, of tests or of this host, are no concern of its.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import busd
from tests.daemons import PATIENCE_SECONDS
from tests.systemd.groups import open_group

ROOT = Path(busd.__file__).parent.parent
SYSTEMD = Path("/lib/systemd/systemd")
_JOURNALD = Path("/lib/systemd/systemd-journald")
_SHIPPED = Path("/usr/lib/systemd")
# Of all that the host has, only these: they start nothing.
_TARGETS = ("basic", "sockets", "timers", "paths", "shutdown", "exit", "sysinit", "multi-user")
_TARGET_UNITS = tuple(f"{name}.target" for name in _TARGETS)
_NEEDED = (*_TARGET_UNITS, "systemd-exit.service", "app.slice", "system.slice")


class NoManager(Exception):
    """There is no systemd here that the tests could use; says why."""


class Manager(ABC):
    """A running systemd; commands run where it runs."""

    flavour: str

    def __init__(self, process: subprocess.Popen[bytes], folder: Path) -> None:
        self.process = process
        self.folder = folder

    @property
    @abstractmethod
    def drop_ins(self) -> Path:
        """The folder where drop-ins for its units go."""

    @abstractmethod
    def command(self, *words: str) -> list[str]:
        """Return a command line that runs where the manager does."""

    @abstractmethod
    def environment(self) -> dict[str, str]:
        """Return the environment of its user."""

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            self.command(*words),
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=PATIENCE_SECONDS,
            check=False,
        )

    def busd(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run(sys.executable, "-m", "busd", *words)

    def try_systemctl(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self.run("systemctl", f"--{self.flavour}", *words)

    def systemctl(self, *words: str) -> str:
        done = self.try_systemctl(*words)
        assert done.returncode == 0, f"systemctl {words}: {done.stderr}\n{self.log()}"
        return done.stdout

    def show(self, unit: str, name: str) -> str:
        """Return a property of a unit."""
        return self.systemctl("show", unit, f"--property={name}", "--value").strip()

    def drop_in(self, unit: str, text: str) -> None:
        """Change a unit."""
        folder = self.drop_ins / f"{unit}.d"
        folder.mkdir(parents=True, exist_ok=True)
        number = len(list(folder.iterdir()))
        (folder / f"{number:02}.conf").write_text(text)

    def log(self) -> str:
        return (self.folder / "log").read_text()


class UserManager(Manager):
    flavour = "user"

    @property
    def drop_ins(self) -> Path:
        return self.folder / "config/systemd/user"

    @property
    def runtime(self) -> Path:
        return self.folder / "run"

    @property
    def socket(self) -> Path:
        return self.runtime / "busd/bus.sock"

    def command(self, *words: str) -> list[str]:
        if not has_own_mounts():
            return list(words)
        return ["nsenter", f"--target={self.process.pid}", "--mount", *words]

    def environment(self) -> dict[str, str]:
        return _user_environment(self.folder)


class SystemManager(Manager):
    flavour = "system"

    @property
    def drop_ins(self) -> Path:
        return self.inside("/etc/systemd/system")

    def inside(self, path: str) -> Path:
        """Return a path of its namespace as it is seen from here."""
        return Path(f"/proc/{self.pid}/root{path}")

    @property
    def pid(self) -> int:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return int(children.read_text().split()[0])

    def command(self, *words: str) -> list[str]:
        return ["nsenter", f"--target={self.pid}", "--all", *words]

    def environment(self) -> dict[str, str]:
        return _system_environment()


def is_booted() -> bool:
    return Path("/run/systemd/system").is_dir()


def has_own_mounts() -> bool:
    """Tell whether a user's manager gets a /run/systemd of its own: only root can make one."""
    return os.geteuid() == 0


@contextmanager
def open_user_manager(*, is_shared: bool = True) -> Iterator[UserManager]:
    """Run a user's manager; raises NoManager if that cannot be.

    Its mounts are shared among its own children: else it could not bring credentials to them.
    """
    _check_programs("unshare", "nsenter")
    if not is_booted() and not has_own_mounts():
        raise NoManager("this host was not booted with systemd, and only root can pretend it was")
    with _open_folder() as folder:
        for name in ("run", "config/systemd/user", "state", "home", "units"):
            (folder / name).mkdir(mode=0o700, parents=True)
        _link_units(folder / "units", _SHIPPED / "user")
        command = [str(SYSTEMD), "--user", "--log-target=console", "--unit=basic.target"]
        if has_own_mounts():
            setup = f"mount --make-{'rshared' if is_shared else 'rprivate'} /"
            setup += " && mount -t tmpfs busd /run/systemd"
            setup += " && mkdir /run/systemd/system"
            command = ["unshare", "--mount", "sh", "-ec", f'{setup} && exec "$@"', "sh", *command]
            Path("/run/systemd").mkdir(exist_ok=True)
        with _open_process(command, _user_environment(folder), folder) as process:
            yield UserManager(process, folder)


@contextmanager
def open_system_manager() -> Iterator[SystemManager]:
    """Run a system's manager; raises NoManager if that cannot be."""
    _check_programs("unshare", "nsenter", "setpriv", "ip")
    if os.geteuid() != 0:
        raise NoManager("only root can run a system's manager in namespaces of its own")
    with _open_folder() as folder:
        for name in ("units", "etc"):
            (folder / name).mkdir()
        _link_units(folder / "units", _SHIPPED / "system")
        script = Path(__file__).with_name("system_manager.sh")
        spaces = ("--mount", "--pid", "--ipc", "--uts", "--net")
        command = ["unshare", *spaces, "--fork", "--kill-child", "sh", "-e", str(script)]
        with _open_process([*command, str(folder)], _system_environment(), folder) as process:
            manager = SystemManager(process, folder)
            try:
                yield manager
            finally:
                os.kill(manager.pid, signal.SIGKILL)  # and so all that run in its namespace
                process.wait(PATIENCE_SECONDS)


@contextmanager
def open_journal(manager: Manager) -> Iterator[None]:
    """Run a journald of its own where a manager runs; raises NoManager if that cannot be.

    It keeps everything in memory and reads only what it is told, not the kernel's log.
    """
    if not has_own_mounts():
        yield  # the host's own
        return
    if not _JOURNALD.exists() or os.geteuid() != 0:
        raise NoManager("journald is not installed, or is not ours to run")
    script = Path(__file__).with_name("journal.sh")
    with (manager.folder / "journal.log").open("wb") as log:
        process = subprocess.Popen(
            manager.command("sh", "-e", str(script), str(_JOURNALD)),
            env=manager.environment(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=log,
            start_new_session=True,
        )
    assert process.stdout is not None
    try:
        if process.stdout.readline() != b"ready\n":
            said = (manager.folder / "journal.log").read_text()
            raise NoManager(f"journald does not run here: {said[-500:]}")
        yield
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(PATIENCE_SECONDS)
        process.stdout.close()


def _check_programs(*names: str) -> None:
    if not SYSTEMD.exists():
        raise NoManager("systemd is not installed")
    missing = [name for name in names if shutil.which(name) is None]
    if missing:
        raise NoManager(f"{', '.join(missing)} is not installed")


@contextmanager
def _open_folder() -> Iterator[Path]:
    # Not pytest's: the path of a socket has at most 107 bytes.
    folder = Path(tempfile.mkdtemp(prefix="busd-systemd-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


def _link_units(folder: Path, shipped: Path) -> None:
    for name in _NEEDED:
        if (shipped / name).exists():
            (folder / name).symlink_to(shipped / name)


def _user_environment(folder: Path) -> dict[str, str]:
    config = folder / "config"
    return {
        "PATH": os.environ["PATH"],
        "PYTHONPATH": str(ROOT),
        "HOME": str(folder / "home"),
        "XDG_RUNTIME_DIR": str(folder / "run"),
        "XDG_CONFIG_HOME": str(config),
        "XDG_STATE_HOME": str(folder / "state"),
        # With the folder of transient units: without it a manager forgets their commands on reload.
        "SYSTEMD_UNIT_PATH": f"{folder}/run/systemd/transient:{config}/systemd/user:{folder}/units",
        "SYSTEMD_LOG_COLOR": "0",
    }


def _system_environment() -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "SYSTEMD_LOG_COLOR": "0"}


@contextmanager
def _open_process(
    command: list[str], environment: dict[str, str], folder: Path
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a manager and wait until it says that it is ready; it tells us as busd tells it."""
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as told,
        (folder / "log").open("wb") as log,
        open_group(folder.name) as run_in_group,
    ):
        if not run_in_group:
            raise NoManager("no control group of its own can be made for systemd here")
        told.bind(str(folder / "notify"))
        process = subprocess.Popen(
            [*run_in_group, *command],
            env={**environment, "NOTIFY_SOCKET": str(folder / "notify")},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        try:
            if not _is_ready(process, told):
                raise NoManager(f"systemd does not run here: {(folder / 'log').read_text()[-500:]}")
            # It goes on telling, and would wait for ever for somebody who does not read.
            told.close()
            assert f"/{folder.name}.slice" in Path(f"/proc/{process.pid}/cgroup").read_text()
            yield process
        finally:
            process.kill()  # its services were stopped by whoever started them
            process.wait(PATIENCE_SECONDS)


def _is_ready(process: subprocess.Popen[bytes], told: socket.socket) -> bool:
    """Wait for word of the manager, or for its end."""
    ended = os.pidfd_open(process.pid)
    try:
        while True:
            readable, _, _ = select.select([told.fileno(), ended], [], [], PATIENCE_SECONDS)
            if told.fileno() not in readable:
                return False
            if b"READY=1" in told.recv(65_536):
                return True
    finally:
        os.close(ended)
