"""The process of the gateway: what it is started with, and when it is started again."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from busd.gateway import GatewaySettings, GatewayTable, GatewayTokens, missing_packages
from busd.supervise import (
    Launch,
    Service,
    Spawners,
    SupervisorSettings,
    WantedService,
    configuration_places,
)

if TYPE_CHECKING:
    from busd import Context

FOLDER = "gateway"
SETTINGS_FILE = "settings.json"
_GRACE_SECONDS = 2.0  # beyond the time that its clients have
_START_SECONDS = 30.0  # less than plugins.handler_seconds and the patience of clients


class GatewayProcess:
    """The gateway as its plugin sees it."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self.table = ctx.own_settings(GatewaySettings).gateway
        self._folder = ctx.state / FOLDER
        self.tokens = GatewayTokens(self._folder)
        self._spawners = Spawners(self._folder, self._supervisor, ctx.tasks.start_soon)
        self.service = Service(
            "gateway",
            self._spawners,
            ctx.tasks.start_soon,
            ctx.log,
            lambda: ctx.is_present(self.table.name),
        )

    @property
    def _supervisor(self) -> SupervisorSettings:
        seconds = self.table.drain_seconds + _GRACE_SECONDS
        return SupervisorSettings(when_bus_stops="stop", stop_seconds=seconds)

    async def apply(self, *, is_anew: bool = False) -> None:
        """Start, restart or stop it, so that it runs with the current settings, or not at all."""
        self.table = self._ctx.own_settings(GatewaySettings).gateway
        await self._spawners.reload(self._supervisor)
        wanted = self._wanted(self.table) if self.table.enabled else None
        await self.service.apply(wanted, is_anew=is_anew)

    def _wanted(self, table: GatewayTable) -> WantedService:
        missing = missing_packages()
        words = f"it needs {', '.join(missing)}; run: pip install 'busd[gateway]'"
        # The settings in force, whatever file, variable or option they come from.
        files = {SETTINGS_FILE: msgspec.json.encode(self._ctx.settings)}
        # It serves webhooks, too, if there is such a table.
        basis = (table, getattr(self._ctx.settings.bridges, "hook", None))
        return WantedService(basis, self._launch(table), files, words if missing else "")

    def _launch(self, table: GatewayTable) -> Launch:
        file: Path = self._folder / SETTINGS_FILE
        return Launch(
            name="busd-gateway",
            command=[sys.executable, "-m", "busd", "gateway", "run", "--settings", str(file)],
            directory=self._folder,
            environment={"BUSD_ADDRESS": self._ctx.bus_address, **configuration_places()},
            memory_max_bytes=table.memory_max_bytes,
            restarts=table.restarts,
            stop_seconds=self._supervisor.stop_seconds,
        )

    def joined(self, name: str) -> None:
        """Note that a peer of this name has joined the bus."""
        if name == self.table.name:
            self.service.joined()

    async def restart(self) -> None:
        """End it and start it again, also after it has failed; wait a while until it runs."""
        await self.apply(is_anew=True)
        await self.service.wait_until_started(_START_SECONDS)

    async def close(self) -> None:
        """End it for good: the bus stops."""
        await self.service.close()
        await self._spawners.close()
