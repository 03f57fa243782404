"""The tests' own managers: other managers, and whatever the host is like, do not concern them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from tests.daemons import PATIENCE_SECONDS
from tests.systemd.managers import (
    ROOT,
    NoManager,
    UserManager,
    has_own_mounts,
    open_user_manager,
)

MISLEADING = {
    "DBUS_SESSION_BUS_ADDRESS": "unix:path=/nowhere/bus",
    "DBUS_SYSTEM_BUS_ADDRESS": "unix:path=/nowhere/system",
    "NOTIFY_SOCKET": "/nowhere/notify",
    "LISTEN_FDS": "3",
    "XDG_RUNTIME_DIR": "/nowhere/run",
    "XDG_CONFIG_HOME": "/nowhere/config",
    "SYSTEMD_UNIT_PATH": "/nowhere/units",
    "INVOCATION_ID": "0" * 32,
    "JOURNAL_STREAM": "1:2",
}
# On a host that looks as if systemd had booted it, with no manager and no journal that answers.
LOOKS_BOOTED = """
mount --make-rprivate /
mount -t tmpfs busd /run/systemd
mkdir /run/systemd/system
exec "$@"
"""
USES_BOTH = """
from pathlib import Path
from tests.systemd.managers import open_journal, open_user_manager
RUN = ("systemd-run", "--user", "--quiet")
assert Path("/run/systemd/system").is_dir()
with open_user_manager() as manager, open_journal(manager):
    done = manager.run(*RUN, "--property=Type=oneshot", "echo", "words of a unit")
    assert done.returncode == 0, done.stderr
    manager.run("journalctl", "--sync")
    print(manager.run("journalctl", "--quiet", "--output=cat", "SYSLOG_IDENTIFIER=echo").stdout)
assert list(Path("/run/systemd").iterdir()) == [Path("/run/systemd/system")]
"""


@contextmanager
def two_managers() -> Iterator[tuple[UserManager, UserManager]]:
    with ExitStack() as stack:
        try:
            first, second = (stack.enter_context(open_user_manager()) for _ in range(2))
        except NoManager as reason:
            pytest.skip(str(reason))
        yield first, second


def test_units_of_the_same_name_in_two_managers_do_not_know_of_each_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name, value in MISLEADING.items():
        monkeypatch.setenv(name, value)
    with two_managers() as managers:
        for manager in managers:
            done = manager.run("systemd-run", "--user", "--unit=same", "sleep", "1000")
            assert done.returncode == 0, done.stderr
        first, second = managers
        groups = [manager.show("same.service", "ControlGroup") for manager in managers]
        assert all(m.folder.name in group for m, group in zip(managers, groups, strict=True))
        shown = first.systemctl("show-environment")
        assert not any(value in shown for value in MISLEADING.values() if value.startswith("/"))

        first.systemctl("stop", "same.service")

        assert second.show("same.service", "ActiveState") == "active"
        pid = int(second.show("same.service", "MainPID"))
        assert os.getpgid(pid)  # it lives
        first.process.kill()  # a manager that dies takes nobody else with it
        first.process.wait(PATIENCE_SECONDS)
        assert second.show("same.service", "MainPID") == str(pid)
        second.systemctl("stop", "same.service")


def test_a_manager_that_ended_leaves_neither_processes_nor_groups_nor_folders() -> None:
    with two_managers() as (first, second):
        done = first.run("systemd-run", "--user", "--unit=left", "sleep", "1000")
        assert done.returncode == 0, done.stderr
        pid = int(first.show("left.service", "MainPID"))
        group = first.show("left.service", "ControlGroup")
        folders = [first.folder, second.folder]
    assert not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text()
    assert not [tree for tree in Path("/sys/fs/cgroup").glob("*") if (tree / group[1:]).exists()]
    assert not any(folder.exists() for folder in folders)


@pytest.mark.skipif(not has_own_mounts(), reason="only root can make a host look booted")
@pytest.mark.skipif(shutil.which("unshare") is None, reason="unshare is not installed")
def test_a_host_that_looks_booted_makes_no_difference_to_a_manager_and_its_journal() -> None:
    with two_managers():
        pass  # skipped where there can be none
    Path("/run/systemd").mkdir(exist_ok=True)
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-ec", LOOKS_BOOTED, "sh", sys.executable, "-c", USES_BOTH],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=2 * PATIENCE_SECONDS,
        check=False,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "words of a unit"), done.stderr
