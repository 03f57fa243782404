"""The processes of bridges: which there are to be, and with what each is started."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import msgspec

from busd.bridge.settings import BridgeTable, credential_file, install_command, missing_packages
from busd.supervise import (
    Launch,
    LogReader,
    Service,
    Spawners,
    SupervisorSettings,
    WantedService,
    configuration_places,
)
from busd_plugins.bridges.settings import ProgramTable, peer_name

if TYPE_CHECKING:
    from busd import Context

FOLDER = "bridges"  # within the state folder
SETTINGS_FILE = "settings.json"
_SUPERVISOR = ".supervisor"  # no bridge is called so
_GRACE_SECONDS = 2.0  # beyond the time that the bridge takes for itself
_STOP_SECONDS = 5.0


class BridgeProcess:
    """One bridge: its table, its name on the bus, and its process."""

    def __init__(self, name: str, table: Any, service: Service) -> None:
        self.name = name
        self.table = table  # Any: each plugin has a struct of its own
        self.service = service

    @property
    def peer(self) -> str:
        """Its name on the bus."""
        is_program = isinstance(self.table, ProgramTable)
        return peer_name(self.name, self.table) if is_program else str(self.table.name)

    @property
    def kind(self) -> str:
        """What it is: a `program`, a `plugin`, or served by the `gateway`."""
        if isinstance(self.table, ProgramTable):
            return "program"
        return "plugin" if isinstance(self.table, BridgeTable) else "gateway"


class BridgeProcesses:
    """All bridges of the settings."""

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        self._folder = ctx.state / FOLDER
        self._spawners = Spawners(
            self._folder / _SUPERVISOR,
            SupervisorSettings(stop_seconds=_STOP_SECONDS),
            ctx.tasks.start_soon,
        )
        self.logs = LogReader()
        self.bridges: dict[str, BridgeProcess] = {}

    async def apply(self) -> None:
        """Start, restart and stop bridges, so that those run whose tables say so."""
        tables = dict(_tables_of(self._ctx.settings))
        gone = [self.bridges.pop(name) for name in self.bridges.keys() - tables.keys()]
        for name, table in sorted(tables.items()):
            if name not in self.bridges:
                self.bridges[name] = self._make(name, table)
            self.bridges[name].table = table
        longest = max((self._seconds(each) for each in self.bridges.values()), default=0.0)
        await self._spawners.reload(SupervisorSettings(stop_seconds=longest or _STOP_SECONDS))
        async with anyio.create_task_group() as tasks:
            for bridge in gone:
                tasks.start_soon(bridge.service.apply, None)
            for bridge in list(self.bridges.values()):
                tasks.start_soon(self._apply, bridge)

    def _make(self, name: str, table: Any) -> BridgeProcess:
        ctx, log = self._ctx, self._ctx.log.bind(bridge=name)

        def is_present() -> bool:
            return ctx.is_present(self.bridges[name].peer)

        service = Service("bridge", self._spawners, ctx.tasks.start_soon, log, is_present)
        return BridgeProcess(name, table, service)

    @staticmethod
    def _seconds(bridge: BridgeProcess) -> float:
        """Return how long it takes to end a bridge; 0 if it is no process of ours."""
        is_process = bridge.kind != "gateway"
        return float(bridge.table.stop_seconds) + _GRACE_SECONDS if is_process else 0.0

    async def _apply(self, bridge: BridgeProcess) -> None:
        is_wanted = bridge.kind != "gateway" and bridge.table.enabled
        await bridge.service.apply(self._wanted(bridge) if is_wanted else None)

    async def restart(self, bridge: BridgeProcess) -> None:
        """End a bridge and start it again, also after it has failed."""
        await bridge.service.apply(self._wanted(bridge), is_anew=True)

    def directory(self, bridge: BridgeProcess) -> Path:
        """Return the folder in which a bridge runs, and that only it uses."""
        return self._folder / bridge.name

    def _wanted(self, bridge: BridgeProcess) -> WantedService:
        table = bridge.table
        if isinstance(table, ProgramTable):
            return WantedService(table, self._launch(bridge, table.command))
        folder = self.directory(bridge)
        words = ["bridge", bridge.name, "--settings", str(folder / SETTINGS_FILE)]
        launch = self._launch(bridge, [sys.executable, "-m", "busd", *words])
        # The settings in force, whatever file, variable or option they come from.
        files = {SETTINGS_FILE: msgspec.json.encode(self._ctx.settings)}
        credentials, written = hand_over_secret(table, folder)
        launch = launch._replace(credentials=credentials)
        missing = missing_packages(type(table))
        why = f"{', '.join(missing)} is not installed; run: {install_command(type(table))}"
        return WantedService(table, launch, files | written, why if missing else "")

    def _launch(self, bridge: BridgeProcess, command: list[str]) -> Launch:
        table = bridge.table
        is_program = isinstance(table, ProgramTable)
        return Launch(
            name=f"busd-bridge-{bridge.name}",
            command=command,
            directory=self.directory(bridge),
            environment={
                **configuration_places(),
                **(table.environment if is_program else {}),
                "BUSD_ADDRESS": self._ctx.bus_address,
                "BUSD_CLIENT_ID": bridge.peer,
            },
            credentials=table.credentials if is_program else {},
            memory_max_bytes=table.memory_max_bytes,
            restarts=table.restarts,
            stop_seconds=self._seconds(bridge),
        )

    def joined(self, name: str) -> None:
        """Note that a peer of this name has joined the bus."""
        for bridge in self.bridges.values():
            if bridge.peer == name:
                bridge.service.joined()

    async def close(self) -> None:
        """End all for good: the bus stops."""
        async with anyio.create_task_group() as tasks:
            for bridge in self.bridges.values():
                tasks.start_soon(bridge.service.close)
        await self._spawners.close()


def hand_over_secret(table: BridgeTable, folder: Path) -> tuple[dict[str, str], dict[str, bytes]]:
    """Return the credentials that a bridge gets of ours, and the files that must be written first.

    A bridge with a `token_file` reads that itself, and gets nothing.
    """
    name = table.secret_name
    if table.token_file or not name:
        return {}, {}
    if given := credential_file(name):
        return {name: str(given)}, {}
    if value := os.environ.get(name):
        # Everybody may see the environment of a unit; nobody else sees this file.
        return {name: str(folder / name)}, {name: value.encode()}
    return {}, {}


def _tables_of(settings: Any) -> Iterator[tuple[str, Any]]:
    """Return each bridge of the settings, with the table of its plugin or its program.

    Any: which tables there are is known only once all plugins have declared theirs.
    """
    table = settings.bridges
    for name in table.__struct_fields__:
        own = getattr(table, name)
        if name == "programs":
            yield from own.items()
        elif own is not None:
            yield name, own
