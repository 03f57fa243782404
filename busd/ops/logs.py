"""Logs: facts on stderr, coloured on a terminal, JSON elsewhere."""

from __future__ import annotations

import logging
import os
import sys
from functools import cache
from typing import Any, cast

import msgspec
import structlog

from busd.ops.log_limit import log_limit

_PRIORITIES = {"debug": b"<7>", "info": b"<6>", "warning": b"<4>", "error": b"<3>"}


def set_up_logs(level: str) -> None:
    """Send every log line of this process to stderr, from `level` upwards."""
    is_terminal = sys.stderr.isatty()
    renderer: Any = (
        structlog.dev.ConsoleRenderer(
            colors="NO_COLOR" not in os.environ,
            # Not the pretty one: it prints local variables, and so secrets.
            exception_formatter=structlog.dev.plain_traceback,
        )
        if is_terminal
        else structlog.processors.JSONRenderer(serializer=_encode_line)
    )
    structlog.configure(
        processors=[
            log_limit,  # first: a line that is dropped costs no more than a call
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            *([] if is_terminal else [structlog.processors.format_exc_info]),
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelName(level.upper())),
        logger_factory=structlog.PrintLoggerFactory(cast(Any, _Tolerant(sys.stderr)))
        if is_terminal
        else structlog.BytesLoggerFactory(cast(Any, _Tolerant(sys.stderr.buffer))),
        cache_logger_on_first_use=True,
    )
    logging.basicConfig(handlers=[_FromLibraries()], level=logging.WARNING, force=True)
    logging.getLogger("busd").setLevel(level.upper())  # the bridge kit and the client log so


class _FromLibraries(logging.Handler):
    """Pass on what libraries log, so that it has the form and the limits of our own lines."""

    def emit(self, record: logging.LogRecord) -> None:
        log = structlog.get_logger("busd.library")
        about = {"library": record.name, "reason": record.getMessage()}
        if record.levelno >= logging.ERROR:
            log.error("library.warned", **about, exc_info=record.exc_info)
        elif record.levelno >= logging.WARNING:
            log.warning("library.warned", **about, exc_info=record.exc_info)
        else:
            log.info("library.reported", **about)


class _Tolerant:
    """A file whose reader may be gone: a daemon must not fail because of a log line."""

    def __init__(self, file: Any) -> None:
        self._file = file

    def write(self, line: Any) -> None:
        try:
            self._file.write(line)
        except (OSError, ValueError):
            pass  # there is nowhere left to say so

    def flush(self) -> None:
        try:
            self._file.flush()
        except (OSError, ValueError):
            pass


@cache
def _is_journal() -> bool:
    """True if journald reads what we say: it takes a priority at the start of a line."""
    facts = os.fstat(sys.stderr.fileno())
    return os.environ.get("JOURNAL_STREAM") == f"{facts.st_dev}:{facts.st_ino}"


def _encode_line(line: Any, **_: Any) -> bytes:
    priority = _PRIORITIES.get(line.get("level"), b"") if _is_journal() else b""
    try:
        return priority + msgspec.json.encode(line, enc_hook=repr)
    except (ValueError, OverflowError):  # a lone surrogate, or a number of more than 64 bits
        plain = {name: _in_ascii(value) for name, value in line.items()}
        return priority + msgspec.json.encode(plain)


def _in_ascii(value: object) -> str:
    text = value if isinstance(value, str) else repr(value)
    return text.encode("ascii", "backslashreplace").decode()
