"""`busd trace` and `busd log`: what the activity log of a running bus knows, as people see it."""

from __future__ import annotations

import json
import re
import resource
import sqlite3
import time
from contextlib import closing
from datetime import UTC, datetime
from typing import Any

import pytest

from busd import Incoming, Refuse, SyncClient
from tests.cli.conftest import Join
from tests.cli.terminal import Terminal
from tests.conftest import DaemonWith
from tests.daemons import PATIENCE_SECONDS, Daemon
from tests.pages import section

TIME = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z"
CLOCK = r"\d\d:\d\d:\d\d\.\d{6}"
MS = r"\d+\.\d+"


@pytest.fixture
def daemon(daemon_with: DaemonWith) -> Daemon:
    """A daemon that keeps payloads, too."""
    return daemon_with({"journal.payload": "head"})


@pytest.fixture
def ann(join: Join) -> SyncClient:
    return join("ann")


def refuse_all(peer: SyncClient, reason: str = "no, thanks") -> None:
    @peer.on()
    def refuse(message: Incoming) -> None:
        raise Refuse(reason)


def log_json(terminal: Terminal, *args: str) -> list[dict[str, Any]]:
    said = terminal.busd("log", "--json", *args)
    assert (said.code, said.err) == (0, "")
    return [json.loads(line) for line in said.out.splitlines()]


# trace


def test_trace_shows_who_got_a_message_and_how_long_it_took(
    terminal: Terminal, ann: SyncClient, bob: SyncClient
) -> None:
    sent = ann.send(bob.client_id, {"type": "hi"})
    said = terminal.busd("trace", sent.message_id)
    assert (said.code, said.err) == (0, "")
    head, columns, row, payload = said.out.splitlines()
    names = f"{re.escape(ann.client_id)} → {re.escape(bob.client_id)}"
    assert re.fullmatch(rf"{TIME}  {names}  ok  {MS} ms", head)
    assert columns.split() == ["PEER", "STATUS", "HANDED", "OVER", "ANSWERED", "MS", "ERROR"]
    assert re.fullmatch(rf"  {re.escape(bob.client_id)} +ok +{CLOCK} +{CLOCK} +{MS}", row)
    assert json.loads(payload.removeprefix("  payload ")) == {"type": "hi"}


def test_trace_shows_the_reply_of_an_agent_too(
    terminal: Terminal, ann: SyncClient, bob: SyncClient
) -> None:
    @ann.on()
    def accept(message: Incoming) -> None: ...

    asked = ann.send(bob.client_id, {"n": 1}).message_id
    bob.send(ann.client_id, {"n": 2}, message_id=f"{asked}.reply")
    said = terminal.busd("trace", asked)
    assert (said.code, said.err) == (0, "")
    lines = said.out.splitlines()
    assert f"reply {asked}.reply" in lines
    payloads = [line for line in lines if line.startswith("  payload ")]
    assert payloads == ['  payload {"n":1}', '  payload {"n":2}']
    shown = json.loads(terminal.busd("trace", asked, "--json").out)
    assert [each["from"] for each in shown["reply"]] == [bob.client_id]


def test_trace_shows_every_addressee_with_its_own_outcome(
    terminal: Terminal, join: Join, ann: SyncClient, bob: SyncClient, suffix: str
) -> None:
    carol = join("agent:carol")
    refuse_all(carol)
    for peer in (bob, carol):
        peer.subscribe(f"all{suffix}")
    sent = ann.send(f"all{suffix}", {})
    said = json.loads(terminal.busd("trace", sent.message_id, "--json").out)
    [attempt] = said["attempts"]
    assert (attempt["from"], attempt["to"]) == (ann.client_id, f"all{suffix}")
    assert attempt["status"] == "failed"
    found = {each["peer"]: (each["status"], each["error"]) for each in attempt["deliveries"]}
    assert found == {bob.client_id: ("ok", None), carol.client_id: ("failed", "no, thanks")}
    assert all(each["ms"] >= 0 for each in attempt["deliveries"])
    assert attempt["ms"] >= max(each["ms"] for each in attempt["deliveries"])
    rows = terminal.busd("trace", sent.message_id).out.splitlines()
    assert any(re.search(r"agent:carol\S* +failed .* no, thanks$", row) for row in rows)


def test_trace_shows_each_attempt(terminal: Terminal, ann: SyncClient, bob: SyncClient) -> None:
    message_id = f"again-{bob.client_id}"
    for _ in range(3):
        ann.send(bob.client_id, {}, message_id=message_id)
    out = terminal.busd("trace", message_id).out
    assert len(re.findall(rf"^{TIME}  ", out, re.M)) == 3


def test_trace_says_that_there_was_nobody(terminal: Terminal, ann: SyncClient, suffix: str) -> None:
    sent = ann.post(f"nobody{suffix}", {})
    said = terminal.busd("trace", sent.message_id)
    assert said.code == 0
    head, payload = said.out.splitlines()
    assert re.fullmatch(rf"{TIME}  \S+ → nobody\S+  no route  {MS} ms", head)
    assert payload == "  payload {}"


def test_trace_shows_what_is_still_open(
    terminal: Terminal, address: str, ann: SyncClient, suffix: str
) -> None:
    with SyncClient(f"mute{suffix}", address=address) as mute:
        sent = ann.post(mute.client_id, {})
        [attempt] = json.loads(terminal.busd("trace", sent.message_id, "--json").out)["attempts"]
        assert attempt["status"] == "in flight"
        assert attempt["sendFinish"] is attempt["ms"] is None
        shown = terminal.busd("trace", sent.message_id).out
        assert re.search(rf"mute\S+ +in flight +{CLOCK} +- +-$", shown, re.M)


def test_trace_of_an_unknown_message_says_so(terminal: Terminal) -> None:
    said = terminal.busd("trace", "msg_unknown")
    assert said == (1, "", "busd: the activity log knows no message msg_unknown\n")
    assert terminal.busd("trace", "msg_unknown", "--json").out == '{"attempts":[]}\n'


# log


def test_log_shows_a_line_for_each_delivery(
    terminal: Terminal, join: Join, ann: SyncClient, bob: SyncClient, suffix: str
) -> None:
    carol = join("agent:carol")
    refuse_all(carol, "busy\nwith \x1b[31mother things")
    bob.subscribe(f"team{suffix}")
    ids = [
        ann.send(to, {}).message_id
        for to in (f"team{suffix}", bob.client_id, carol.client_id, f"nobody{suffix}")
    ]
    said = terminal.busd("log", "--from", ann.client_id)
    assert (said.code, said.err) == (0, "")
    assert "\x1b" not in said.out
    lines = said.out.splitlines()
    assert [line.split("  ")[1] for line in lines] == ids
    team, plain, failed, unrouted = (" ".join(line.split("  ")[2:]) for line in lines)
    name = re.escape(ann.client_id)
    assert re.fullmatch(rf"{name} → team\S+ \({re.escape(bob.client_id)}\) ok {MS} ms", team)
    assert re.fullmatch(rf"{name} → {re.escape(bob.client_id)} ok {MS} ms", plain)
    assert re.fullmatch(rf"{name} → agent:carol\S+ failed {MS} ms busy.*other things", failed)
    assert re.fullmatch(rf"{name} → nobody\S+ no route {MS} ms", unrouted)


def test_log_can_be_narrowed_down(terminal: Terminal, join: Join, suffix: str) -> None:
    ann, eve = join("ann"), join("eve")
    for sender in (ann, eve):
        for to in ("tg:1", "tg:2", "agent:x"):
            sender.post(to + suffix, {"to": to})
    ours = ["--to", f"*{suffix}"]
    assert len(log_json(terminal, *ours)) == 6
    found = log_json(terminal, "--to", f"tg:?{suffix}", "--from", ann.client_id)
    assert [(each["from"], each["to"]) for each in found] == [
        (ann.client_id, f"tg:{number}{suffix}") for number in (1, 2)
    ]
    assert [each["to"] for each in log_json(terminal, *ours, "-n", "2")] == [
        f"tg:2{suffix}",
        f"agent:x{suffix}",
    ]  # the latest
    ids = [each["id"] for each in log_json(terminal, *ours)]
    assert ids == sorted(set(ids))


def test_log_since_an_age_or_a_time(terminal: Terminal, ann: SyncClient, suffix: str) -> None:
    ann.post(f"early{suffix}", {})
    ours = ["--from", ann.client_id]
    assert len(log_json(terminal, *ours)) == 1  # so it is written, and the next one is later
    ann.post(f"late{suffix}", {})
    early, late = log_json(terminal, *ours)

    def names(*args: str) -> list[str]:
        return [each["to"] for each in log_json(terminal, *ours, *args)]

    both = [f"early{suffix}", f"late{suffix}"]
    for since in ("15m", "2h", "7d", "900s", "2026-01-01", early["ts"]):
        assert names("--since", since) == both, since
    # ids tell the time, in microseconds, at which a row was written
    between = datetime.fromtimestamp((early["id"] + late["id"]) / 2e6, UTC).isoformat()
    assert names("--since", between) == both[1:]
    assert names("--since", "0s") == []


@pytest.mark.parametrize("since", ["yesterday", "15", "15w", "-5m", "2026-13-01"])
def test_a_time_that_is_none_is_a_mistake_in_typing(lonely: Terminal, since: str) -> None:
    said = lonely.busd("log", f"--since={since}")
    assert (said.code, said.out) == (2, "")
    assert f"--since {since}: write a time like" in said.err


@pytest.mark.parametrize("limit", ["0", "1001", "many"])
def test_a_limit_that_is_none_is_a_mistake_in_typing(lonely: Terminal, limit: str) -> None:
    assert lonely.busd("log", "-n", limit).code == 2


def test_log_follows_what_comes_each_once_and_in_order(
    terminal: Terminal, ann: SyncClient, bob: SyncClient
) -> None:
    before = [ann.send(bob.client_id, {}).message_id for _ in range(3)]
    with terminal.start("log", "--follow", "--json", "-n", "2", "--from", ann.client_id) as log:
        shown = [json.loads(log.stdout.readline())["messageId"] for _ in range(2)]
        assert shown == before[1:]
        for count in (1, 5):
            sent = [ann.send(bob.client_id, {}).message_id for _ in range(count)]
            found = [json.loads(log.stdout.readline()) for _ in sent]
            assert [each["messageId"] for each in found] == sent
            assert {each["status"] for each in found} == {"ok"}
        assert log.interrupt().code == 130


def test_log_follows_from_nothing(terminal: Terminal, ann: SyncClient, suffix: str) -> None:
    with terminal.start("log", "-f", "--to", f"later{suffix}") as log:
        # It has begun once it is on the bus.
        while not any(each["clientId"].startswith("cli:") for each in ann.status()["connections"]):
            pass
        ann.post(f"earlier{suffix}", {})
        sent = [ann.post(f"later{suffix}", {}).message_id for _ in range(3)]
        assert [log.stdout.readline().split("  ")[1] for _ in sent] == sent


# Where there is none


@pytest.mark.parametrize("args", [["trace", "msg_1"], ["log"], ["log", "--follow"]])
def test_a_bus_without_an_activity_log_says_so(
    daemon_with: DaemonWith, lonely: Terminal, args: list[str]
) -> None:
    address = f"unix:{daemon_with({'journal.enabled': False}).path}"
    said = lonely.busd(*args, "-a", address)
    assert said.code == 2
    assert said.out == ""
    assert said.err == "busd: this bus keeps no activity log; see journal.enabled (-32602)\n"


def test_only_an_admin_may_read_it(daemon_with: DaemonWith, lonely: Terminal) -> None:
    daemon = daemon_with({"policy": "strict"})
    token = lonely.busd("token", "new", "reader", "-a", f"unix:{daemon.path}").out.strip()
    address = f"tcp://:{token}@127.0.0.1:{daemon.port}"
    for args in (["trace", "msg_1"], ["log"], ["token", "ls"]):
        said = lonely.busd(*args, "-a", address)
        assert (said.code, said.out) == (77, "")
        assert "is no admin here" in said.err


# Plain SQL


def test_plain_sql_works_and_is_that_of_the_documentation(
    daemon: Daemon, ann: SyncClient, bob: SyncClient, suffix: str
) -> None:
    [query] = re.findall(
        r'journal\.db "(.*?)"\n', section("docs/operating.md", "Activity log"), re.S
    )
    sent = ann.send(bob.client_id, {"type": "hi"})
    ann.call("bus.trace", {"messageId": sent.message_id})  # now it is written
    with closing(sqlite3.connect(daemon.folder / "state/journal.db")) as db:
        rows = [row for row in db.execute(query) if row[3] == bob.client_id]
        plan = " ".join(row[3] for row in db.execute(f"explain query plan {query}"))
    assert [(event, actor) for _, event, actor, *_ in rows] == [
        ("send_start", ann.client_id),
        ("process_start", bob.client_id),
        ("process_finish", bob.client_id),
        ("send_finish", ann.client_id),
    ]
    assert "SCAN block" not in plan  # it reads the hour it asks for, not the whole log


def test_who_reads_is_told_that_the_log_cannot_be_written(
    terminal: Terminal, daemon: Daemon, suffix: str
) -> None:
    daemon.is_blamed = True  # it says that it cannot write
    pid, limit = daemon.process.pid, resource.RLIMIT_FSIZE
    before = resource.prlimit(pid, limit, (0, resource.RLIM_INFINITY))
    lost = terminal.busd("send", f"nobody{suffix}", "hello").out.strip()
    words = "the latest messages are not in the activity log yet; the log of the bus says why"
    behind = f"warning: {words}\n"
    assert terminal.busd("log", "--to", f"nobody{suffix}") == (0, "", behind)
    unknown = f"busd: the activity log knows no message {lost}\n"
    assert terminal.busd("trace", lost) == (1, "", behind + unknown)
    assert json.loads(terminal.busd("trace", lost, "--json").out)["isBehind"]
    resource.prlimit(pid, limit, before)
    # The writer tries again by itself; until it has, asking again says so.
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (said := terminal.busd("log", "--to", f"nobody{suffix}")).err == behind:
        assert time.monotonic() < deadline
    assert (said.code, said.err) == (0, "")
    assert lost in said.out


# Mail


def test_a_trace_tells_what_became_of_mail(
    terminal: Terminal, ann: SyncClient, join: Join, suffix: str
) -> None:
    away = f"agent:away{suffix}"
    message_id = ann.send(away, {}, durable=True).message_id
    bob = join("agent:away")
    for number, message in enumerate(bob.messages()):
        if number == 0:
            message.fail("cold\x1b[31m oven", retry_seconds=0)
        else:
            message.fail("never")
            break
    while not ann.call("bus.listDead", {"to": away})["letters"]:
        pass
    ann.call("bus.retryDead", {"to": away})
    ann.call("bus.purgeMailbox", {"address": away})
    said = terminal.busd("trace", message_id)
    events = [line.split("  ", 2)[2] for line in said.out.splitlines() if "→" in line]
    events = [re.sub(rf"{MS} ms", "MS", event) for event in events]
    assert events[:4] == [
        "kept in the mailbox",
        "failed  MS",
        "failed  MS  (attempt 2)",
        "given up, now a dead letter: never",
    ]
    assert "kept in the mailbox: retried by an operator" in events
    assert "\x1b" not in said.out
