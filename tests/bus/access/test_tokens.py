"""Tokens: how they are kept, and who may make and revoke them."""

from __future__ import annotations

import json
import os
import stat
from contextlib import ExitStack
from pathlib import Path

import pytest

from busd.bus.authenticator import hash_token
from busd.errors import ConfigError, InvalidParams
from busd.ops.tokens import TokenStore
from tests.bus.access.conftest import Guarded
from tests.bus.access.guarded import as_owner, error_of, join_with, new_token, open_guarded
from tests.cli.terminal import Terminal
from tests.daemons import Loop, open_daemon, run_busd, serve_args
from tests.wire_peers import Transport, connect


def test_the_files_are_for_the_owner_only_and_hold_no_named_token(tmp_path: Path) -> None:
    store = TokenStore(tmp_path)
    store.load()
    token = store.new("bridge")
    files = {file.name: file for file in tmp_path.iterdir()}
    assert sorted(files) == ["token", "tokens.json"]
    for file in files.values():
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert token not in file.read_text()
    assert hash_token(token) in files["tokens.json"].read_text()


def test_a_running_bus_keeps_its_token_files_to_its_owner() -> None:
    with open_guarded("uvloop") as daemon:
        token = new_token(daemon, "bridge")
        for name in ("token", "tokens.json"):
            file = daemon.folder / "state" / name
            assert stat.S_IMODE(file.stat().st_mode) == 0o600
            assert token not in file.read_text()


def test_the_owner_keeps_its_token_when_the_bus_starts_again(tmp_path: Path) -> None:
    first, again = TokenStore(tmp_path).load(), TokenStore(tmp_path).load()
    assert first == again
    assert [record.name for record in first] == ["owner"]
    store = TokenStore(tmp_path)
    store.revoke("owner")
    assert store.load()[0].sha256 != first[0].sha256


def test_tokens_differ_and_are_long(tmp_path: Path) -> None:
    store = TokenStore(tmp_path)
    tokens = [store.new(f"t{number}") for number in range(20)]
    assert len(set(tokens)) == 20
    assert all(token.startswith("busd_") and len(token) == 48 for token in tokens)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("bridge", "there is a token 'bridge' already; revoke it first"),
        ("owner", "there is a token 'owner' already; revoke it first"),
        ("", "a token's name has 1 to 64 printable characters"),
        ("x" * 65, "a token's name has 1 to 64 printable characters"),
        ("a\nb", "a token's name has 1 to 64 printable characters"),
    ],
)
def test_a_name_that_is_taken_or_malformed_is_refused(name: str, said: str, tmp_path: Path) -> None:
    store = TokenStore(tmp_path)
    store.new("bridge")
    with pytest.raises(InvalidParams) as refused:
        store.new(name)
    assert refused.value.message == said
    assert len(store.load()) == 2


def test_a_token_that_is_not_there_cannot_be_revoked(tmp_path: Path) -> None:
    with pytest.raises(InvalidParams, match="there is no token 'bridge'"):
        TokenStore(tmp_path).revoke("bridge")


_CORRUPT = [
    ("tokens.json", b"", "tokens.json: Input data was truncated"),
    ("tokens.json", b"{", "tokens.json: "),
    ("tokens.json", b'[{"name": 5}]', "tokens.json: Expected `str`, got `int`"),
    ("tokens.json", b'[{"name": "\xff"}]', "tokens.json: "),
    ("token", b"", "token holds no token; remove it to get a new one"),
    ("token", b"short\n", "token holds no token; remove it to get a new one"),
    ("token", b"\xff" * 40, "token holds no token; remove it to get a new one"),
]


@pytest.mark.parametrize(("name", "content", "said"), _CORRUPT)
def test_a_corrupt_file_is_named(name: str, content: bytes, said: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ConfigError) as problem:
        TokenStore(tmp_path).load()
    assert str(problem.value).startswith(f"{tmp_path}/{said}")


def test_a_file_that_cannot_be_read_or_written_is_named(tmp_path: Path) -> None:
    (tmp_path / "tokens.json").mkdir()
    with pytest.raises(ConfigError, match=r"cannot read .*/tokens\.json: Is a directory"):
        TokenStore(tmp_path).load()
    with pytest.raises(ConfigError, match=r"cannot write .*/token: No such file or directory"):
        TokenStore(tmp_path / "nowhere").load()


def test_a_bus_with_a_corrupt_file_does_not_start(tmp_path: Path) -> None:
    state = tmp_path / "state"
    state.mkdir()
    (state / "tokens.json").write_text("{")
    code, said = run_busd(serve_args(tmp_path, "uvloop", {}), tmp_path)
    assert code == 78
    assert said.startswith(f"busd: {state}/tokens.json: ")
    assert said.count("\n") == 1


def test_a_file_that_becomes_corrupt_is_named_to_the_admin(
    tmp_path: Path, opened: ExitStack
) -> None:
    with open_guarded("uvloop") as daemon:
        token = new_token(daemon, "bridge")
        daemon.is_blamed = True  # it says so in its log
        (daemon.folder / "state/tokens.json").write_text("{")
        said = Terminal(tmp_path, f"unix:{daemon.path}").busd("token", "new", "another")
        assert said.code == 1
        assert f"{daemon.folder}/state/tokens.json: " in said.err
        assert said.err.count("\n") == 1
        assert "Traceback" not in daemon.log()
        join_with(daemon, "tcp", token, "tg:1", opened)  # what was read before still counts


def test_the_command_line_makes_lists_and_revokes_tokens(tmp_path: Path, opened: ExitStack) -> None:
    with open_guarded("uvloop") as daemon:
        terminal = Terminal(tmp_path, f"unix:{daemon.path}")
        made = terminal.busd("token", "new", "bridge")
        assert (made.code, made.err) == (0, "")
        peer = join_with(daemon, "ws", made.out.strip(), "tg:1", opened)
        twice = terminal.busd("token", "new", "bridge")
        assert (twice.code, twice.out) == (2, "")
        assert "there is a token 'bridge' already" in twice.err
        listed = terminal.busd("token", "ls")
        assert [line.split()[0] for line in listed.out.splitlines()] == ["NAME", "owner", "bridge"]
        assert made.out.strip() not in listed.out
        assert terminal.busd("token", "revoke", "bridge").code == 0
        assert peer.expect_close() == 1008
        again = terminal.busd("token", "revoke", "bridge")
        assert again.code == 2
        assert "there is no token 'bridge'" in again.err


@pytest.mark.parametrize("way", ["tcp", "ws"])  # over Unix these tests are the owner
@pytest.mark.parametrize("token", ["plain", "limited"])
def test_who_is_no_admin_manages_and_reads_nothing_of_others(
    token: str, way: Transport, guarded: Guarded, opened: ExitStack
) -> None:
    daemon, tokens = guarded
    peer = join_with(daemon, way, tokens[token], "guest:1", opened)
    known = as_owner(daemon, "bus.listTokens")
    question = {"from": "guest:1", "to": "desk:1"}
    for method, params in [
        ("bus.newToken", {"name": "more"}),
        ("bus.listTokens", {}),
        ("bus.revokeToken", {"name": "plain"}),
        ("bus.revokeToken", {"name": "unknown"}),
        ("bus.trace", {"messageId": "msg_1"}),
        ("bus.log", {}),
        ("bus.explain", question | {"uid": 0}),
        ("bus.explain", question | {"token": "owner"}),
    ]:
        assert error_of(peer, method, params) == (-32602, "grant.admin"), method
    assert as_owner(daemon, "bus.listTokens") == known
    assert peer.call("bus.explain", question)["allowed"]


def test_a_grant_can_make_an_admin(opened: ExitStack) -> None:
    with open_guarded("uvloop", [{"name": "ops", "token": "ops", "admin": True}]) as daemon:
        peer = join_with(daemon, "tcp", new_token(daemon, "ops"), "ops:1", opened)
        assert peer.call("bus.newToken", {"name": "more"})["name"] == "more"


def test_before_initialize_nobody_is_an_admin(guarded: Guarded, opened: ExitStack) -> None:
    peer = connect(guarded.daemon, "unix")
    opened.callback(peer.close)
    assert error_of(peer, "bus.newToken", {"name": "x"}) == (-32001, "initialize.first")


def test_the_log_says_who_made_and_who_revoked_a_token_but_not_the_token(loop: Loop) -> None:
    with open_daemon(loop, {"policy": "strict"}, log_level="info") as daemon:
        token = new_token(daemon, "bridge")
        as_owner(daemon, "bus.revokeToken", {"name": "bridge"})
        lines = [json.loads(line) for line in daemon.log().splitlines()]
        assert token not in daemon.log()
    said = [line for line in lines if line["event"].startswith("token.")]
    assert [(line["event"], line["name"]) for line in said] == [
        ("token.made", "bridge"),
        ("token.revoked", "bridge"),
    ]
    assert all(line["identity"].startswith(f"uid {os.geteuid()}") for line in said)


@pytest.mark.parametrize("name", ["token", "tokens.json"])
def test_a_file_of_tokens_that_others_may_read_or_write_is_not_used(
    tmp_path: Path, name: str
) -> None:
    store = TokenStore(tmp_path)
    store.load()
    store.new("bridge")
    file = tmp_path / name
    for mode in (0o640, 0o604, 0o602):
        file.chmod(mode)
        with pytest.raises(ConfigError) as refused:
            store.load()
        assert str(refused.value) == (
            f"{file} is not for its owner alone (mode {mode:04o}): chmod 0600 it, or remove it if"
            " others may have been there"
        )
    file.chmod(0o600)
    assert [record.name for record in store.load()] == ["owner", "bridge"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_tokens_of_somebody_else_is_not_used(tmp_path: Path) -> None:
    store = TokenStore(tmp_path)
    store.load()
    os.chown(tmp_path / "token", 65_534, 65_534)
    with pytest.raises(ConfigError, match="belongs to uid 65534; remove it to get a new one"):
        store.load()
