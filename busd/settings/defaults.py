"""The default busd.toml: every setting with its default and a line about it, all commented out."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import get_args, get_origin

import msgspec

from busd.settings.config import Settings

_HEAD = """\
# The settings of busd. Each line shows a default; take away its # to change it.
# Apply changes with `{reload}`; `busd doctor` says what is wrong.
"""

# The same words as in the table of docs/settings.md.
ABOUT = {
    "listen": "where to listen",
    "state": "folder that outlives a restart; one daemon each",
    "loop": "`uvloop`, `asyncio` or `trio`",
    "policy": "`strict`: only what grants allow; `open`: everybody on this host, as anybody",
    "identify_loopback": "know who connects over loopback TCP by the kernel, without a token",
    "log_level": "`debug`, `info`, `warning` or `error`",
    "drain_seconds": "how long a stopping bus waits for acks still owed",
    "allowed_origins": "web sites whose pages may connect",
    "allowed_hosts": "more names of this host, for `/metrics` and the like",
    "wire.max_frame_bytes": "largest frame",
    "wire.max_hello_bytes": "largest frame before `initialize`",
    "wire.max_queue_bytes": "unread bytes that make a peer busy",
    "wire.max_unread_bytes": "unread bytes that close a peer",
    "wire.max_connections": "connections at a time",
    "wire.first_request_seconds": "time to `initialize`",
    "wire.linger_seconds": "time a closing connection has to read its last words",
    "wire.ping_seconds": "how often quiet WebSockets are pinged",
    "delivery.ack_seconds": "time a peer has to answer a message",
    "delivery.max_unanswered": "unanswered messages that make a peer busy",
    "delivery.max_subscriptions": "subscriptions of one peer",
    "delivery.max_globs": "subscriptions of one peer that are neither addresses nor prefixes",
    "delivery.max_ack_bytes": "largest sum of ack payloads in one answer",
    "delivery.max_held_bytes": "ack payloads held while slower peers think",
    "quota.connections": "connections of one identity",
    "quota.subscriptions": "subscriptions of one identity",
    "quota.globs": "subscriptions of one identity that are neither addresses nor prefixes",
    "quota.unread_bytes": "bytes that the peers of one identity have not read",
    "quota.unanswered": "messages from one identity that wait for acks, one per addressee",
    "quota.memory_bytes": "memory held for one identity, estimated",
    "quota.unknown_share": "share of each quota for all unknown connections together",
    "journal.enabled": "keep an activity log of all messages",
    "journal.payload": "how much of a payload is logged: `full`, `head` or `off`",
    "journal.head_bytes": "how long a head is",
    "journal.keep_days": "how long deliveries are kept",
    "journal.max_bytes": "how large the log may grow",
    "journal.max_backlog_rows": "deliveries that may wait to be written",
    "journal.max_backlog_bytes": "bytes of long payloads that may wait to be written",
    "journal.write_seconds": "how often the log is written",
    "tls.certificate": "PEM file with the certificate for `tls://` and `wss://`",
    "tls.key": "PEM file with its key, if it is not in the same file",
    "tls.client_ca": "PEM file with the authority that signs clients' certificates",
    "tls.client_certificate": "whether clients show one: `none`, `optional` or `required`",
    "plugins.folders": "more folders to look for plugins in",
    "plugins.disabled": "names of plugins that are not to run",
    "plugins.max_running": "messages that one plugin may be at work on; then it is busy",
    "plugins.handler_seconds": "time a plugin has to answer a message",
    "plugins.start_seconds": "time a plugin has to be imported, and to start",
    "plugins.stop_seconds": "time a plugin has to stop",
    "plugins.settings": "a table for each plugin that has settings of its own",
    "agents.ready_seconds": "time a worker has from its start to `initialize`",
    "agents.stop_seconds": "time a worker has to end before it is killed",
    "agents.max_workers": "workers at a time",
    "agents.max_starting": "workers that start at a time; twice the cores if not set",
    "agents.max_waiting": "messages held for one worker that is starting",
    "agents.channel_types": "kinds of channel that a `spawn_request` may name",
    "agents.when_bus_stops": "`stop` workers with the bus, or `keep` them for the next one",
    "agents.adopt_seconds": "how long kept workers wait for the bus to come back",
    "agents.memory_max_bytes": "memory of all workers together (systemd)",
    "agents.cpu_percent": "processor time of all workers together (systemd)",
    "agents.tasks_max": "processes and threads of all workers together (systemd)",
    "agents.keep_days": "how long workspaces of stopped agents are kept",
    "workers": "the workers of one channel; `workers.default` is for channels without a table",
    "workers.command": "any program: a message's text in, the answer out; else an echo answers",
    "workers.agent": "instead: a program that is itself a peer of the bus",
    "workers.openai_url": "instead: an endpoint that speaks OpenAI's chat completions",
    "workers.model": "the model to ask there",
    "workers.pass_text": "how the text gets in: `stdin` or `argument`",
    "workers.persistent": "one process for the whole conversation: `no`, `lines` or `json`",
    "workers.until": "the line that ends an answer where `persistent` is `lines`",
    "workers.prompt": "what such a program shows when it waits for the next line",
    "workers.stream": "send each line of the answer as it comes",
    "workers.when_busy": "a message during a turn: `queue`, `interrupt`, `merge` or `reject`",
    "workers.turn_seconds": "time for one answer",
    "workers.idle_seconds": "time without a message until the worker is stopped; 0: never",
    "workers.spawner": "`systemd`, `subprocess`, or `auto` for the best there is",
    "workers.environment": "more environment variables; no place for secrets",
    "workers.credentials": "names and files of secrets, found in `$CREDENTIALS_DIRECTORY`",
    "workers.memory_max_bytes": "memory of one worker",
    "workers.file_max_bytes": "largest file that a worker may write",
    "workers.cpu_percent": "processor time of one worker",
    "workers.tasks_max": "processes and threads of one worker",
    "workers.restarts": "failures in a row before a worker is given up",
    "workers.restart_seconds": "wait before the first restart; doubled each time",
    "grant": "what a uid, systemd unit, token or certificate may do; any number of tables",
    "grant.name": "what rules call it; else its number",
    "grant.uid": "for processes of this user on the Unix socket",
    "grant.unit": "for processes of this systemd unit on the Unix socket",
    "grant.token": "for whoever shows the token of this name",
    "grant.certificate": "for whoever shows a client certificate with this common name",
    "grant.client_ids": "names it may take",
    "grant.speak_as": "senders it may use besides its own name",
    "grant.send_to": "addresses it may send to",
    "grant.subscribe": "patterns it may subscribe to",
    "grant.messages_per_second": "how fast it may send, in the long run",
    "grant.burst": "messages it may send at once, before that counts",
    "grant.max_frame_bytes": "largest frame, if not `wire.max_frame_bytes`",
    "grant.admin": "may manage tokens and read the activity log",
}


def encode_default_config(places: dict[str, object], reload: str) -> str:
    """Return the text of the file; `places` are the defaults that depend on whose bus it is."""
    settings = msgspec.structs.replace(Settings(), **places)
    values: list[str] = []
    tables: list[str] = []
    for name, value, kind in _defaults(settings, ""):
        (tables if _table_of(kind) else values).append(_lines_for(name, value, kind))
    # Tables last: every line after the head of one would belong to it.
    return "\n".join([_HEAD.format(reload=reload), *values, *tables])


def _defaults(settings: msgspec.Struct, prefix: str) -> Iterator[tuple[str, object, object]]:
    """Return the dotted name, default and type of every setting."""
    for field in msgspec.structs.fields(settings):
        value = getattr(settings, field.name)
        if isinstance(value, msgspec.Struct):
            yield from _defaults(value, f"{prefix}{field.encode_name}.")
        else:
            yield f"{prefix}{field.encode_name}", value, field.type


def _table_of(kind: object) -> type[msgspec.Struct] | None:
    """Return the struct of a setting that is a list of tables, or tables by name."""
    inner = get_args(kind)[-1] if get_origin(kind) in (list, dict) else None
    is_struct = isinstance(inner, type) and issubclass(inner, msgspec.Struct)
    return inner if is_struct else None


def _lines_for(name: str, value: object, kind: object) -> str:
    about = f"# {ABOUT[name]}\n" if name in ABOUT else ""
    if table := _table_of(kind):
        keys = (_member_lines(name, field) for field in msgspec.structs.fields(table))
        head = f"[[{name}]]" if get_origin(kind) is list else f"[{name}.default]"
        return f"{about}#{head}\n{''.join(keys)}"
    return f"{about}{_value_line(name, value)}"


def _member_lines(table: str, field: msgspec.structs.FieldInfo) -> str:
    about = ABOUT.get(f"{table}.{field.encode_name}")
    return (f"# {about}\n" if about else "") + _value_line(field.encode_name, default_of(field))


def _value_line(name: str, value: object) -> str:
    return f"#{name} =     # not set\n" if value is None else f"#{name} = {encode_value(value)}\n"


def default_of(field: msgspec.structs.FieldInfo) -> object:
    """Return the default of a member; None if it has none."""
    if field.default_factory is not msgspec.NODEFAULT:
        return field.default_factory()
    return None if field.default is msgspec.NODEFAULT else field.default


def encode_value(value: object) -> str:
    """Return a value as TOML; of what settings are made of, JSON differs only in tables."""
    if isinstance(value, dict):
        inner = ", ".join(f"{json.dumps(key)} = {encode_value(value[key])}" for key in value)
        return f"{{{inner}}}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(encode_value, value))}]"
    return json.dumps(value, ensure_ascii=False)
