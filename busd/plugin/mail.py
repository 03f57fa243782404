"""The mailboxes as a plugin sees them: those of the addresses whose peers it starts."""

from __future__ import annotations

from collections.abc import Awaitable, Generator
from typing import TYPE_CHECKING, Any

import anyio
from msgspec import Raw

from busd.bus.mail import BoxSummary, Mail, MailFailure
from busd.bus.mail_store import Operation, Peek, Survey
from busd.bus.message import Message
from busd.plugin.context import Context

if TYPE_CHECKING:
    from busd.bus.mailboxes import Mailboxes
    from busd.plugin.running import RunningPlugin

_PAGE = 1_000


class Coming:
    """A value that comes later; await it, any number of times."""

    def __init__(self) -> None:
        self._value: Any = None
        self._has_come = anyio.Event()

    def settle(self, value: Any) -> None:
        self._value = value
        self._has_come.set()

    def __await__(self) -> Generator[Any, Any, Any]:
        yield from self._has_come.wait().__await__()
        return self._value


class PluginMail:
    """What a plugin does with mail; `ctx.mail`."""

    def __init__(self, running: RunningPlugin) -> None:
        self._running = running

    @property
    def _boxes(self) -> Mailboxes:
        return self._running.host.bus.find_mailboxes()

    def waiting(self, prefix: str = "") -> list[str]:
        """Return the addresses that have mail, also after a restart of the bus."""
        return self._boxes.waiting(prefix)

    def is_waiting(self, address: str) -> bool:
        """Return whether an address has mail that is not answered and not being buried."""
        return self._boxes.has_mail(address)

    async def counts(self, prefix: str) -> dict[str, int]:
        """Return how many messages wait, by address."""
        found: dict[str, int] = {}
        page: list[BoxSummary] | MailFailure = await self._submit(Survey(prefix, limit=_PAGE))
        while page and not isinstance(page, MailFailure):
            found |= {each.address: each.count for each in page if each.count}
            page = await self._submit(Survey(prefix, page[-1].address, _PAGE))
        return found

    async def first(self, address: str) -> Context | None:
        """Return the first message that waits for an address, if the disk can be read."""
        found: list[Mail] | MailFailure = await self._submit(Peek(address, limit=1))
        if isinstance(found, MailFailure) or not found:
            return None
        return context_of(self._running, found[0])

    def _submit(self, operation: Operation[Any]) -> Coming:
        coming = Coming()
        self._boxes.submit(operation, coming.settle)
        return coming

    def hold(self, address: str) -> None:
        """Keep what comes for an address, and hand over nothing, until it is let go."""
        self._running.held.add(address)
        self._boxes.hold(address)

    def let_go(self, address: str) -> None:
        """Deliver to an address again."""
        if address in self._running.held:
            self._running.held.discard(address)
            self._boxes.let_go(address)
            self._running.host.flush_soon()

    def bury(self, address: str, reason: str) -> Awaitable[int]:
        """Make dead letters of all mail that an address has now: nobody will come for it.

        Senders that wait get a failed ack with the reason, for the rest `on_dead_letter` is
        called. Await the result for their number.
        """
        coming = Coming()
        self._boxes.bury_all(address, reason, coming.settle)
        self._running.host.flush_soon()
        return coming


def context_of(running: RunningPlugin, mail: Mail) -> Context:
    """Return the context of a message that was kept; what is sent from it continues its chain."""
    running.host.bus.loops.note_handed_over(mail, [running.peer.name])
    message = Message(
        sender=mail.sender,
        to=mail.address,
        message_id=mail.message_id,
        payload=Raw(mail.payload),
    )
    return Context(running, message)
