"""busd as a service of the system: it works in its sandbox, and still knows who its peers are."""

from __future__ import annotations

import stat
import sys
from pathlib import Path

from tests.systemd.conftest import sees_python
from tests.systemd.managers import SystemManager
from tests.wire_peers import LinePeer, open_unix

# Accepts one connection as busd does and says what it knows of who connected.
_PROBE = """
import socket, struct
line, _ = socket.socket(fileno=3).accept()
pid, uid, _ = struct.unpack("3i", line.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
line.sendall(f"{uid} {open(f'/proc/{pid}/cgroup').read()}".encode())
"""
_VISITOR = """
import os, socket
line = socket.socket(socket.AF_UNIX)
line.connect("/run/busd/bus.sock")
print(os.getuid(), line.makefile().read())
"""


def test_the_service_runs_in_its_sandbox_as_nobody_else(system_service: SystemManager) -> None:
    system_service.systemctl("start", "busd.service")

    pid = system_service.show("busd.service", "MainPID")
    status = status_of(system_service.inside(f"/proc/{pid}/status"))
    assert status["Uid"].split()[0] != "0"
    assert status["CapBnd"] == status["CapEff"] == "0000000000000000"
    assert (status["NoNewPrivs"], status["Seccomp"]) == ("1", "2")
    assert system_service.show("busd.service", "StatusText") == (
        "listening on unix:/run/busd/bus.sock, tcp://127.0.0.1:7892"
    )
    state = system_service.inside("/var/lib/private/busd")
    assert stat.S_IMODE(state.stat().st_mode) == 0o700
    assert (state / "busd.lock").exists()


def test_the_service_answers_and_keeps_its_socket(system_service: SystemManager) -> None:
    socket = system_service.inside("/run/busd/bus.sock")
    for _ in range(2):
        system_service.systemctl("restart", "busd.service")
        peer = LinePeer(open_unix(str(socket)))
        try:
            assert "jsonrpc" in peer.answer_to(peer.request("initialize", {"clientId": "agent:a"}))
        finally:
            peer.close()

    assert stat.S_IMODE(socket.stat().st_mode) == 0o666
    assert stat.S_IMODE(socket.parent.stat().st_mode) == 0o755
    assert socket.parent.stat().st_uid == 0


def test_the_sandbox_hides_neither_the_uid_nor_the_unit_of_a_peer(
    system_service: SystemManager,
) -> None:
    probe, visitor = (system_service.folder / name for name in ("probe.py", "visitor.py"))
    probe.write_text(_PROBE)
    visitor.write_text(_VISITOR)
    start = f"ExecStart=\nExecStart={sys.executable} {probe}"
    system_service.drop_in(
        "busd.service", f"[Service]\nType=exec\nBindReadOnlyPaths={probe}\n{start}\n"
    )
    (system_service.drop_ins / "visitor.service").write_text(
        "[Service]\nType=oneshot\nDynamicUser=yes\nStandardOutput=file:/run/visitor.out\nStandardError=append:/run/busd.log\n"
        f"PrivateTmp=yes\nBindReadOnlyPaths={visitor}\n"
        + "\n".join([*sees_python(), f"ExecStart={sys.executable} {visitor}"])
    )
    system_service.systemctl("daemon-reload")

    system_service.systemctl("start", "busd.service")
    system_service.systemctl("start", "visitor.service")

    heard = system_service.inside("/run/visitor.out").read_text()
    uid, seen_uid, groups = heard.split(maxsplit=2)
    assert uid == seen_uid != "0"
    assert "/visitor.service\n" in groups


def status_of(path: Path) -> dict[str, str]:
    """Return what the kernel says of a process."""
    return {
        name: value.strip()
        for name, _, value in (line.partition(":") for line in path.read_text().splitlines())
    }
