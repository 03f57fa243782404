"""The methods of the operator: tokens, access, and what the activity log knows."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated, Any, TypeVar

import anyio.from_thread
import msgspec
import structlog
from msgspec import UNSET, UnsetType

from busd.bus.access import Decision, Identity
from busd.bus.address import check_address
from busd.bus.methods import Done, Nothing, methods
from busd.bus.peer import RemotePeer
from busd.errors import (
    AccessRefused,
    AuthenticationFailed,
    ConfigError,
    InternalError,
    InvalidParams,
    MalformedAddress,
)
from busd.journal.entries import Attempt, LogEntry
from busd.journal.journal import Journal
from busd.journal.query import tail, trace
from busd.ops.control import register_control, require_admin
from busd.ops.dead_letters import register_dead_letters
from busd.ops.mail_admin import register_mailboxes
from busd.ops.running import RunningBus
from busd.plugin.host import PluginStatus
from busd.rpc.endpoint import Asker
from busd.rpc.envelope import ENVELOPE_BYTES, RequestId, as_many_as_fit
from busd.rpc.methods import DEFERRED, Methods

log = structlog.get_logger("busd.ops")

T = TypeVar("T")
JOURNAL_FILE = "journal.db"
_WRITE_SECONDS = 1.0


class TokenName(msgspec.Struct):
    name: str


class NewToken(msgspec.Struct):
    name: str
    token: str

    def __repr__(self) -> str:
        return f"<NewToken {self.name!r}>"  # never the token


class KnownToken(msgspec.Struct, rename="camel"):
    name: str
    created_at: str


class KnownTokens(msgspec.Struct):
    tokens: list[KnownToken]


class ExplainParams(msgspec.Struct, rename="camel"):
    """A question about a message; about oneself, or (admins) about any identity."""

    to: str
    sender: str = msgspec.field(name="from")
    client_id: str | UnsetType = UNSET
    uid: int | UnsetType = UNSET
    unit: str | UnsetType = UNSET
    token: str | UnsetType = UNSET
    type: str | UnsetType = UNSET


class KnownPlugins(msgspec.Struct):
    plugins: list[PluginStatus]


class TraceParams(msgspec.Struct, rename="camel"):
    message_id: str


class Traced(msgspec.Struct, rename="camel", omit_defaults=True):
    attempts: list[Attempt]
    is_behind: bool = False  # the latest messages are not written yet
    more_attempts: int = 0  # how many there was no room for


class LogParams(msgspec.Struct, rename="camel"):
    """Patterns for sender and destination; `since` in seconds since 1970."""

    to: str | None = None
    sender: str | None = msgspec.field(name="from", default=None)
    since: float | None = None
    after_id: int | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=1000)] = 100


class Logged(msgspec.Struct, rename="camel", omit_defaults=True):
    entries: list[LogEntry]
    is_behind: bool = False


class Explained(msgspec.Struct, rename="camel"):
    allowed: bool
    rule: str
    reason: str
    known_by: str | UnsetType = UNSET  # what the peer that asks is known by


def admin_methods(daemon: RunningBus) -> Methods[RemotePeer]:
    """Return the methods of the bus with those of the operator added."""
    table = methods.copy()

    @table.register(
        "bus.explain", ExplainParams, Explained, errors=(MalformedAddress, AccessRefused)
    )
    def explain(
        peer: RemotePeer, params: ExplainParams, asker: Asker, request_id: RequestId, /
    ) -> Explained:
        """Return whether a message would be allowed, and by which rule."""
        decision = _decide(daemon, peer, params)
        is_about_itself = {params.uid, params.unit, params.token} == {UNSET}
        known_by = peer.identity.known_by if is_about_itself else UNSET
        return Explained(decision.allowed, decision.rule, decision.reason, known_by)

    @table.register("bus.newToken", TokenName, NewToken, errors=(AccessRefused, InvalidParams))
    def new_token(
        peer: RemotePeer, params: TokenName, asker: Asker, request_id: RequestId, /
    ) -> NewToken:
        """Create a token for peers on TCP and WebSocket; it is shown only once."""
        require_admin(peer)
        with _saying_what_is_wrong():
            token = daemon.tokens.new(params.name)
            _take_tokens(daemon)
        log.info("token.made", name=params.name, peer=peer.name, identity=str(peer.identity))
        return NewToken(params.name, token)

    @table.register("bus.listTokens", Nothing, KnownTokens, errors=(AccessRefused,))
    def list_tokens(
        peer: RemotePeer, params: Nothing, asker: Asker, request_id: RequestId, /
    ) -> KnownTokens:
        """List tokens."""
        require_admin(peer)
        records = daemon.bus.authenticator.tokens.values()
        return KnownTokens([KnownToken(record.name, record.created_at) for record in records])

    @table.register("bus.revokeToken", TokenName, Done, errors=(AccessRefused, InvalidParams))
    def revoke_token(
        peer: RemotePeer, params: TokenName, asker: Asker, request_id: RequestId, /
    ) -> object:
        """Forget a token and close the connections that came with it."""
        require_admin(peer)
        with _saying_what_is_wrong():
            daemon.tokens.revoke(params.name)
            log.info("token.revoked", name=params.name, peer=peer.name, identity=str(peer.identity))
            asker.answer(request_id, Done())  # first: it may be our own connection that closes
            _take_tokens(daemon)
        return DEFERRED

    @table.register("bus.listPlugins", Nothing, KnownPlugins, errors=(AccessRefused,))
    def list_plugins(
        peer: RemotePeer, params: Nothing, asker: Asker, request_id: RequestId, /
    ) -> KnownPlugins:
        """List plugins, the addresses and methods they answer, and their faults."""
        require_admin(peer)
        return KnownPlugins(daemon.plugins.describe())

    @table.register("bus.trace", TraceParams, Traced, errors=(AccessRefused, InvalidParams))
    def trace_message(
        peer: RemotePeer, params: TraceParams, asker: Asker, request_id: RequestId, /
    ) -> object:
        """Return every event of a message in the activity log."""
        journal = _readable_journal(daemon, peer)
        query = partial(trace, journal.path, params.message_id)
        room = asker.max_frame_bytes - ENVELOPE_BYTES

        def answer() -> Traced:
            (attempts, count), is_behind = journal.read(query)
            shown = as_many_as_fit(attempts, room)
            return Traced(shown, is_behind, max(count - len(shown), 0))

        daemon.offload.put(answer, asker, request_id)
        return DEFERRED

    @table.register("bus.log", LogParams, Logged, errors=(AccessRefused, InvalidParams))
    def read_log(
        peer: RemotePeer, params: LogParams, asker: Asker, request_id: RequestId, /
    ) -> object:
        """Return the latest deliveries of the activity log, or those after one already seen."""
        journal = _readable_journal(daemon, peer)
        query = partial(
            tail,
            journal.path,
            to=params.to,
            sender=params.sender,
            since=params.since,
            after_id=params.after_id,
            limit=params.limit,
        )
        room = asker.max_frame_bytes - ENVELOPE_BYTES
        is_latest = params.after_id is None

        def answer() -> Logged:
            entries, is_behind = journal.read(query)
            shown = as_many_as_fit(entries[::-1] if is_latest else entries, room)
            return Logged(shown[::-1] if is_latest else shown, is_behind)

        daemon.offload.put(answer, asker, request_id)
        return DEFERRED

    register_control(table, daemon)
    register_mailboxes(table, daemon)
    register_dead_letters(table, daemon)
    return table


class ReadableJournal:
    """The activity log, including everything that has happened until now."""

    def __init__(self, daemon: RunningBus, journal: Journal) -> None:
        self.path = Path(daemon.settings.state) / JOURNAL_FILE
        self._writer = journal.writer
        self._pump = partial(journal.pump, daemon.bus.open_since)
        self._pump()

    def read(self, query: Callable[[], T]) -> tuple[T, bool]:
        """Run a query in this thread, once the latest deliveries are written.

        Return what was found, and whether the writer is behind, as it is while the disk is full.
        """
        is_written = self._writer.wait_until_written(_WRITE_SECONDS)
        if is_written:
            # The writer may have been busy with an earlier batch: hand it the rest now.
            anyio.from_thread.run_sync(self._pump)
            is_written = self._writer.wait_until_written(_WRITE_SECONDS)
        return query(), not is_written


def _readable_journal(daemon: RunningBus, peer: RemotePeer) -> ReadableJournal:
    require_admin(peer)
    if daemon.journal is None:
        raise InvalidParams("this bus keeps no activity log; see journal.enabled", rule="journal")
    return ReadableJournal(daemon, daemon.journal)


@contextmanager
def _saying_what_is_wrong() -> Iterator[None]:
    """Return what is wrong with the files of this bus; for admins only."""
    try:
        yield
    except ConfigError as problem:
        log.error("tokens.failed", reason=str(problem))
        raise InternalError(str(problem), rule="state") from None


def _take_tokens(daemon: RunningBus) -> None:
    """Apply new tokens, and disconnect peers with revoked ones, at once."""
    authenticator = daemon.bus.authenticator
    authenticator.tokens = {record.name: record for record in daemon.tokens.load()}
    daemon.bus.take_access(authenticator)


def _decide(daemon: RunningBus, peer: RemotePeer, params: ExplainParams) -> Decision:
    """Check the rules that apply to a message, in the same order."""
    check_address(params.sender)
    check_address(params.to)
    facts: dict[str, Any] = {
        name: value
        for name in ("uid", "unit", "token")
        if (value := getattr(params, name)) is not UNSET
    }
    rights = peer.rights
    if facts:
        require_admin(peer)
        identity = Identity(**facts)
        rights = daemon.bus.authenticator.rights_of(identity)
        if not rights.grants:
            known = daemon.bus.authenticator.tokens
            is_unknown = identity.token and identity.token not in known
            reason = f"no token {identity.token!r}" if is_unknown else f"no grant for {identity}"
            return Decision(False, AuthenticationFailed.rule, f"there is {reason}")
    client_id = peer.name if params.client_id is UNSET else params.client_id
    for decision in (
        rights.may_be(client_id),
        rights.may_speak_as(client_id, params.sender),
        rights.may_send_to(params.to),
    ):
        if not decision.allowed:
            return decision
    if params.type is UNSET or rights.speaks_as_anybody:
        return decision
    by_type = daemon.bus.type_checks.decide_for(client_id, params.sender, params.type)
    return decision if by_type.allowed else by_type
