"""A session: whom an agent talks to, and its settings; `configure` changes both for good."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from busd.agent.folder import read_private, write_private
from busd.bus.address import check_address
from busd.errors import MalformedAddress, Refuse
from busd.vocabulary.bub import Configure

log = logging.getLogger("busd.agent")

_MAX_SETTINGS_BYTES = 64 * 1024
_MAX_FILE_BYTES = 1024 * 1024


class AgentSettings:
    """`talkto` and the named settings, kept in the workspace's config.json.

    What was configured wins over the command line: a worker that is started again has the same
    command line as before.
    """

    def __init__(self, talkto: str, workspace: Path | None) -> None:
        self.talkto = talkto
        self.settings: dict[str, Any] = {}
        self._file = workspace / "config.json" if workspace else None
        self._load()

    def change(self, wanted: Configure) -> None:
        """Apply what is set, delete what is null; if invalid, raise Refuse and change nothing."""
        talkto = self.talkto if wanted.talkto is UNSET else wanted.talkto
        news = {} if wanted.settings is UNSET else wanted.settings
        settings = {name: v for name, v in (self.settings | news).items() if v is not None}
        if talkto != self.talkto:
            try:
                check_address(talkto)
            except MalformedAddress as wrong:
                raise Refuse(f"configure: content.talkto: {wrong}") from None
        if len(msgspec.json.encode(settings)) > _MAX_SETTINGS_BYTES:
            raise Refuse(f"configure: settings over {_MAX_SETTINGS_BYTES} bytes")
        has_changed = (talkto, settings) != (self.talkto, self.settings)
        self.talkto, self.settings = talkto, settings
        if has_changed:
            self._save()

    def _load(self) -> None:
        kept = self._read()
        if isinstance(talkto := kept.get("talkto"), str) and talkto:
            self.talkto = talkto
        if isinstance(settings := kept.get("settings"), dict):
            self.settings = settings

    def _save(self) -> None:
        """Write our two members; the others are somebody else's and stay."""
        if self._file is None:
            return
        whole = self._read() | {"talkto": self.talkto, "settings": self.settings}
        try:
            write_private(self._file, msgspec.json.format(msgspec.json.encode(whole)) + b"\n")
        except OSError as problem:
            log.warning("%s cannot be written, so a restart forgets it: %s", self._file, problem)

    def _read(self) -> dict[str, Any]:
        try:
            text = read_private(self._file, _MAX_FILE_BYTES) if self._file else b"{}"
            return msgspec.json.decode(text or b"{}", type=dict[str, Any])
        except (OSError, msgspec.MsgspecError, RecursionError) as problem:
            log.warning("%s cannot be read and is left out: %s", self._file, problem)
            return {}
