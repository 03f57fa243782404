"""Listeners: accept sockets and create a connection for each."""

from __future__ import annotations

import errno
import socket
from contextlib import suppress

import anyio
import structlog
from anyio.abc import TaskGroup

from busd.errors import ConfigError, RequestError
from busd.wire.bus_address import BusAddress
from busd.wire.connection import Connection
from busd.wire.connections import Connections
from busd.wire.credentials import read_credentials
from busd.wire.driver import drive
from busd.wire.sockets import bound_address, forget, listen_on, tune
from busd.wire.tls import TlsTransport
from busd.wire.tls_settings import Certificates

log = structlog.get_logger("busd.wire")

_OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
_PAUSE_SECONDS = 0.25
_ACCEPTS_PER_ROUND = 128  # then serve the open connections


class Listener:
    """One listening socket; `serve` accepts until it is cancelled or closed."""

    def __init__(
        self,
        address: BusAddress,
        inherited: socket.socket | None = None,
        certificates: Certificates | None = None,
    ) -> None:
        if address.is_encrypted and certificates is None:
            raise ConfigError(f"{address}: this bus has no certificate; see tls.certificate")
        self._certificates = certificates if address.is_encrypted else None
        self.is_inherited = inherited is not None  # keep its file: another process listens there
        self._sock = inherited or listen_on(address)
        self.address = bound_address(address, self._sock)
        self._is_closed = False

    async def serve(self, connections: Connections, tasks: TaskGroup) -> None:
        try:
            while not self._is_closed:
                await anyio.wait_readable(self._sock)
                await self._accept_some(connections, tasks)
        except anyio.ClosedResourceError:
            pass
        finally:
            self._is_closed = True
            self.forget()

    def forget(self) -> None:
        """Close the socket and remove its file, if it is ours."""
        if self.is_inherited:
            self._sock.close()
        else:
            forget(self.address, self._sock)

    def close(self) -> None:
        """Stop accepting connections."""
        if not self._is_closed:
            self._is_closed = True
            anyio.notify_closing(self._sock)

    async def _accept_some(self, connections: Connections, tasks: TaskGroup) -> None:
        for _ in range(_ACCEPTS_PER_ROUND):
            try:
                sock, _ = self._sock.accept()
            except BlockingIOError:
                return
            except OSError as problem:
                if problem.errno in _OUT_OF_RESOURCES:
                    # The connection stays in the backlog; spinning on it would starve the rest.
                    log.warning("listener.paused", listen=str(self.address), reason=str(problem))
                    await anyio.sleep(_PAUSE_SECONDS)
                    return
                continue  # the client disconnected before it was accepted
            await self._welcome(sock, connections, tasks)

    def _wrapped(self, connection: Connection) -> Connection | TlsTransport:
        """Wrap the connection in TLS if the address requires it."""
        if self._certificates is None:
            return connection
        return TlsTransport(connection, self._certificates.context)

    async def _welcome(
        self, sock: socket.socket, connections: Connections, tasks: TaskGroup
    ) -> None:
        try:
            tune(sock)
            connection = connections.make(str(self.address), read_credentials(sock))
        except RequestError as fault:
            self._refuse(sock, fault, connections)
            return
        except OSError:  # disconnected meanwhile
            sock.close()
            return
        try:
            await drive(sock, self._wrapped(connection), tasks)
        except OSError:  # disconnected meanwhile
            sock.close()
            connection.connection_lost(None)

    def _refuse(self, sock: socket.socket, fault: RequestError, connections: Connections) -> None:
        """Close a socket over the limit; send the reason, unless the client expects TLS."""
        rule = fault.data["rule"]
        log.warning("connection.refused", listen=str(self.address), reason=rule)
        if self._certificates is None:
            with suppress(OSError):
                sock.setblocking(False)
                sock.send(connections.encode_refusal(fault))
        sock.close()
