"""Report our state to the service manager (`sd_notify`), if there is one.

A manager that wants to know gives us `$NOTIFY_SOCKET`; one that watches over us, `$WATCHDOG_USEC`.
"""

from __future__ import annotations

import os
import socket
import time

# A manager that does not read must not hold up the loop for longer than this.
_PATIENCE_SECONDS = 0.5
# A quarter: three may come late or get lost before the manager thinks that we hang.
_FEEDS_PER_PERIOD = 4


def ready(status: str) -> None:
    """Report that the bus is ready; also at the end of a reload."""
    _tell("READY=1", f"STATUS={status}")


def status(text: str) -> None:
    """Set the status line that `systemctl status` shows."""
    _tell(f"STATUS={text}")


def reloading() -> None:
    """Report that a reload has begun; `ready` ends it."""
    # The time tells the manager which of its requests this answers.
    _tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}", "STATUS=reloading")


def stopping(drain_seconds: float) -> None:
    """Report that the bus is stopping, and how long that may take."""
    extend = f"EXTEND_TIMEOUT_USEC={int(drain_seconds * 1_000_000)}"
    _tell("STOPPING=1", extend, "STATUS=answering what was accepted")


def watchdog() -> None:
    """Feed the watchdog."""
    _tell("WATCHDOG=1")


def watchdog_seconds() -> float | None:
    """Return the watchdog's time-out; None if there is no watchdog."""
    if os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    period = os.environ.get("WATCHDOG_USEC", "")
    return int(period) / 1_000_000 if period.isdecimal() and int(period) else None


class Watchdog:
    """Feeds the manager's watchdog, no oftener than it needs; the loop it watches calls `feed`."""

    def __init__(self) -> None:
        period = watchdog_seconds()
        self._pause_seconds = period / _FEEDS_PER_PERIOD if period else float("inf")
        self._fed_at = -float("inf") if period else float("inf")

    def feed(self) -> None:
        now = time.monotonic()
        if now - self._fed_at >= self._pause_seconds:
            self._fed_at = now
            watchdog()


def _tell(*lines: str) -> None:
    """Send one datagram to the manager, if there is one."""
    where = os.environ.get("NOTIFY_SOCKET", "")
    if where[:1] not in ("/", "@"):
        return
    text = "\n".join(line.replace("\n", " ") for line in lines)
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.settimeout(_PATIENCE_SECONDS)
        try:
            # An address that begins with @ is not a path but in the kernel's own list.
            sock.connect("\0" + where[1:] if where[0] == "@" else where)
            sock.sendall(text.encode())
        except OSError:
            pass  # it does not listen: we are no worse off than without a manager
