"""`busd call`, `status` and `describe`, and how the bus is found."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from busd import SyncClient
from tests.cli.terminal import Terminal
from tests.daemons import Daemon

VERBS = (["status"], ["describe"], ["call", "ping"], ["send", "a", "b"], ["listen", "a"])


def test_call_prints_the_result_for_people_and_for_programs(terminal: Terminal) -> None:
    said = terminal.busd("call", "ping")
    assert (said.code, said.err) == (0, "")
    assert said.out.startswith('{\n  "timestamp": "')
    said = terminal.busd("call", "ping", "--json")
    assert (said.code, said.out.count("\n")) == (0, 1)
    assert json.loads(said.out).keys() == {"timestamp"}


def test_call_takes_params(terminal: Terminal, bob: SyncClient) -> None:
    params = json.dumps({"to": bob.client_id, "payload": {}}, indent=1)
    said = terminal.busd("call", "sendMessage", params, "--json")
    assert json.loads(said.out)["acks"][0]["clientId"] == bob.client_id


@pytest.mark.parametrize(
    ("args", "problem"),
    [
        (["ping", "{"], "params must be a JSON object"),
        (["ping", "[]"], "params must be a JSON object"),
        (["noSuchMethod"], "Method not found"),
        (["subscribe", "{}"], "(-32602)"),
        (["sendMessage", '{"to":"two words","payload":{}}'], "malformed address"),
        ([], "Missing argument 'METHOD'"),
    ],
)
def test_a_call_that_makes_no_sense_is_a_mistake_in_typing(
    terminal: Terminal, args: list[str], problem: str
) -> None:
    said = terminal.busd("call", *args)
    assert (said.code, said.out) == (2, "")
    assert problem in said.err
    assert "Traceback" not in said.err


def test_a_call_that_is_refused_otherwise_fails(terminal: Terminal) -> None:
    said = terminal.busd("call", "unsubscribe", '{"address": "a"}')
    assert (said.code, said.out) == (1, "")
    assert said.err.endswith("(-32003)\n")


def test_a_call_may_have_its_time(terminal: Terminal, suffix: str, address: str) -> None:
    with SyncClient(f"mute{suffix}", address=address) as mute:
        params = json.dumps({"to": mute.client_id, "payload": {}})
        said = terminal.busd("call", "sendMessage", params, "--timeout", "0.05")
    assert said == (75, "", "busd: the bus did not answer in time: sendMessage\n")


def test_status_shows_who_is_connected(terminal: Terminal, bob: SyncClient, suffix: str) -> None:
    bob.subscribe(f"team:*{suffix}")
    said = terminal.busd("status")
    heading, mail, columns, *rows = said.out.splitlines()
    assert (said.code, said.err) == (0, "")
    assert re.fullmatch(r"mail: \d+ waiting, \d+ dead letters", mail)
    assert heading.startswith("bus-")
    assert heading.endswith(f": {len(rows)} connected")
    assert columns.split() == ["PEER", "CONNECTION", "KNOWN", "BY", "SUBSCRIPTIONS", "ABOUT"]
    [row] = [row for row in rows if row.startswith(f"{bob.client_id} ")]
    assert f"{bob.client_id} team:*{suffix}" in row
    found = json.loads(terminal.busd("status", "--json").out)
    assert bob.client_id in [each["clientId"] for each in found["connections"]]


def test_what_peers_say_of_themselves_cannot_steer_the_terminal(
    terminal: Terminal, suffix: str, address: str
) -> None:
    evil = {"name": "evil\x1b[2J\u009b\nagent:bob", "version": "1"}
    with SyncClient(f"evil{suffix}", address=address, info=evil):
        said = terminal.busd("status")
        assert "evil�[2J��agent:bob" in said.out
        for verb in (["status", "--json"], ["call", "getStatus"]):
            out = terminal.busd(*verb).out
            assert all(line.isprintable() for line in out.splitlines())
            about = [each["clientInfo"] for each in json.loads(out)["connections"]]
            assert evil in about


def test_describe_shows_every_method(terminal: Terminal) -> None:
    said = terminal.busd("describe")
    assert said.code == 0
    document = json.loads(terminal.busd("describe", "--json").out)
    assert document["openrpc"].startswith("1.")
    names = [method["name"] for method in document["methods"]]
    assert [line.split()[0] for line in said.out.splitlines()] == ["METHOD", *names]


# How the bus is found


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_no_bus_is_one_line_and_its_exit_code(lonely: Terminal, verb: list[str]) -> None:
    said = lonely.busd(*verb)
    where = f"unix:{lonely.folder}/busd/bus.sock"
    assert said == (69, "", f'busd: no bus at {where}; start one with "busd serve"\n')


@pytest.mark.parametrize("verb", VERBS, ids=lambda verb: verb[0])
def test_an_address_that_is_none_is_a_bad_configuration(lonely: Terminal, verb: list[str]) -> None:
    said = lonely.busd(*verb, "--address", "http://localhost")
    assert (said.code, said.out) == (78, "")
    assert said.err.startswith("busd: 'http://localhost' is not an address of a bus; use unix:")
    assert said.err.count("\n") == 1


def test_an_environment_that_names_no_address_is_a_bad_configuration(lonely: Terminal) -> None:
    assert lonely.busd("status", BUSD_ADDRESS="nonsense").code == 78
    assert lonely.busd("status", BUB_BUS_URL="nonsense").code == 78


def test_the_flag_wins_over_the_environment_and_ours_over_bubs(
    daemon: Daemon, lonely: Terminal
) -> None:
    good, bad = f"ws://127.0.0.1:{daemon.port}", "nonsense"
    assert lonely.busd("status", BUSD_ADDRESS=good, BUB_BUS_URL=bad).code == 0
    assert lonely.busd("status", BUB_BUS_URL=good).code == 0
    assert lonely.busd("status", "-a", good, BUSD_ADDRESS=bad, BUB_BUS_URL=bad).code == 0


def test_without_any_word_the_users_own_socket_is_tried(daemon: Daemon, lonely: Terminal) -> None:
    place = Path(lonely.environment["XDG_RUNTIME_DIR"]) / "busd"
    place.mkdir()
    (place / "bus.sock").symlink_to(daemon.path)
    assert lonely.busd("status").code == 0
