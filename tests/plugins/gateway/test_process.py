"""The gateway as a process of the bus: started, watched, restarted and ended with it."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from websockets.sync.client import connect

from busd import CallRefused, SyncClient
from tests.daemons import PATIENCE_SECONDS, Daemon, Loop, open_daemon, start_busd
from tests.pages import samples_of, text_of
from tests.plugins.gateway.asking import Gateway, open_gateway_of

TABLE = {"gateway.enabled": True, "gateway.listen": "127.0.0.1:0"}
HERE = {"policy": "strict", **TABLE}


@pytest.fixture
def daemon(loop: Loop) -> Iterator[Daemon]:
    with open_daemon(loop, HERE) as daemon:
        yield daemon


@pytest.fixture
def gateway(daemon: Daemon) -> Iterator[Gateway]:
    with open_gateway_of(daemon) as gateway:
        gateway.until("running")
        yield gateway


@contextmanager
def started_alone(daemon: Daemon, config: str) -> Iterator[list[str]]:
    """Run a gateway that the bus does not start; return where clients connect to."""
    command = [sys.executable, "-m", "busd", "gateway", "run", "--json", "--config", config]
    environment = os.environ | {"BUSD_ADDRESS": f"unix:{daemon.path}"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())["listening"]
        finally:
            process.terminate()


def test_it_is_started_with_the_bus_and_shows_its_clients(gateway: Gateway) -> None:
    status = gateway.status()
    assert status["overview"]["is_connected"] is True
    with closing(socket.create_connection(gateway.place(), PATIENCE_SECONDS)):
        pass  # it listens where it says
    assert gateway.run("status").splitlines()[2].startswith("gateway: running at 127.0.0.1:")
    lines = [line.split(maxsplit=1) for line in gateway.run("gateway", "status").splitlines()]
    assert ["listening", status["listen"]] in lines
    assert ["connected", "yes"] in lines
    assert ["conversations", "0"] in lines
    assert ["ok", f"gateway: it runs at {status['listen']}"] in [
        line.split(maxsplit=1) for line in gateway.run("doctor", is_fine=False).splitlines()
    ]


def test_it_ends_with_the_bus(daemon: Daemon, gateway: Gateway) -> None:
    pid = gateway.status()["pid"]
    assert daemon.stop() == 0
    assert not Path(f"/proc/{pid}").exists()


def test_one_that_is_killed_is_started_again(gateway: Gateway) -> None:
    before = gateway.status()["pid"]
    os.kill(before, signal.SIGKILL)
    after = gateway.until("running", lambda status: status.get("restarts") == 1)
    assert after["pid"] != before
    assert after["reason"] == "killed by SIGKILL"


def test_a_restart_on_request_gets_it_a_new_process(gateway: Gateway) -> None:
    before = gateway.status()["pid"]
    gateway.run("gateway", "restart")
    after = gateway.status()
    assert after["state"] == "running"
    assert after["pid"] != before
    assert after.get("restarts", 0) == 0


def test_several_gateways_serve_one_bus(daemon: Daemon, gateway: Gateway, tmp_path: Path) -> None:
    token = gateway.run("gateway", "token", "new", "ann").strip()
    (tmp_path / "gateway").mkdir(mode=0o700)
    copied = Path(shutil.copy2(daemon.folder / "state/gateway/tokens.json", tmp_path / "gateway"))
    assert copied.stat().st_mode & 0o077 == 0
    config = tmp_path / "busd.toml"
    config.write_text(
        f'state = "{tmp_path}"\n[gateway]\nname = "gateway-2"\nlisten = "127.0.0.1:0"\n'
        "identify_loopback = false\n"
    )
    with started_alone(daemon, str(config)) as places:
        for place in ("{}:{}".format(*gateway.place()), urlsplit(places[0]).netloc):
            address = f"ws://{place}/ws/ai?session_id=same&token={token}"
            with connect(address) as client:
                client.send(f"hello by {place}")
                frames = [json.loads(client.recv(PATIENCE_SECONDS)) for _ in range(2)]
            assert frames[0]["session_info"] == {"is_existing_session": False}
            assert frames[1]["content"] == f"hello by {place}"
        names = {peer["clientId"] for peer in gateway.bus.status()["connections"]}
        assert {"gateway", "gateway-2"} <= names


def test_one_that_runs_on_its_own_shows_up(loop: Loop) -> None:
    with open_daemon(loop, HERE | {"gateway.enabled": False}) as daemon:
        config = daemon.folder / "gateway.toml"
        config.write_text(f'state = "{daemon.folder}/state"\n[gateway]\nlisten = "127.0.0.1:0"\n')
        with open_gateway_of(daemon) as gateway, started_alone(daemon, str(config)) as places:
            status = gateway.until("running")
            assert status["listen"] == urlsplit(places[0]).netloc
            assert f"gateway: running at {status['listen']}, 0 clients" in gateway.run("status")
            assert f"it runs at {status['listen']}" in gateway.run("doctor", is_fine=False)


def test_without_the_setting_there_is_none(loop: Loop) -> None:
    with open_daemon(loop) as daemon, open_gateway_of(daemon) as gateway:
        assert gateway.status()["state"] == "disabled"
        with pytest.raises(CallRefused, match="the gateway is disabled: "):
            gateway.bus.call("gateway.restart")


def test_a_reload_starts_and_ends_it(loop: Loop) -> None:
    with open_daemon(loop) as daemon, open_gateway_of(daemon) as gateway:
        config = daemon.folder / "busd.toml"
        without = config.read_text()
        config.write_text(without + "".join(f"{k} = {json.dumps(v)}\n" for k, v in TABLE.items()))
        gateway.bus.call("bus.reload")
        pid = gateway.until("running")["pid"]
        config.write_text(without)
        gateway.bus.call("bus.reload")
        gateway.until("disabled")
        assert not Path(f"/proc/{pid}").exists()


def test_a_reload_restarts_it_when_it_has_other_webhooks_to_serve(
    daemon: Daemon, gateway: Gateway
) -> None:
    config, before = daemon.folder / "busd.toml", gateway.status()["pid"]
    gateway.bus.call("bus.reload")
    assert gateway.status()["pid"] == before
    config.write_text(f'{config.read_text()}\nbridges.hook.path = "/hooks"\n')
    gateway.bus.call("bus.reload")
    assert gateway.until("running")["pid"] != before


def test_a_port_in_use_is_said_and_the_bus_goes_on(loop: Loop) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as taken:
        place = f"127.0.0.1:{taken.getsockname()[1]}"
        with open_daemon(loop, HERE | {"gateway.listen": place, "gateway.restarts": 1}) as daemon:
            with open_gateway_of(daemon) as gateway:
                failed = gateway.until("failed")
                assert place in failed["reason"]
                assert "in use" in failed["reason"]
                assert gateway.bus.ping()
                assert "it does not run: " in gateway.run("doctor", is_fine=False)
            daemon.is_blamed = True
            [fault] = daemon.faults()
            assert '"event":"gateway.failed"' in fault


def test_a_dialect_that_is_not_there_is_named(loop: Loop) -> None:
    settings = HERE | {"gateway.dialects": ["tkr", "morse"], "gateway.restarts": 1}
    with open_daemon(loop, settings) as daemon, open_gateway_of(daemon) as gateway:
        assert "there is no plugin 'morse'" in gateway.until("failed")["reason"]
        with pytest.raises(CallRefused, match=r"cannot start: .* there is no plugin 'morse'"):
            gateway.bus.call("gateway.restart")
        [line] = [each for each in gateway.run("status").splitlines() if "gateway: " in each]
        assert line.startswith("gateway: failed: exit code 78, bad configuration: ")
        daemon.is_blamed = True


@pytest.mark.parametrize("variable", ["CONFIGURATION_DIRECTORY", "XDG_CONFIG_HOME"])
def test_it_serves_dialects_from_the_plugin_folder_of_the_bus(
    loop: Loop, tmp_path: Path, variable: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    is_shared = variable == "XDG_CONFIG_HOME"
    folder = tmp_path / "busd/plugins" if is_shared else tmp_path / "plugins"
    folder.mkdir(parents=True)
    [(_, sample)] = samples_of(text_of("docs/gateway.md"), "python")
    (folder / "shout.py").write_text(sample)
    monkeypatch.setenv(variable, str(tmp_path))
    settings = HERE | {"gateway.dialects": ["shout"], "agents.channel_types": ["shout"]}
    with open_daemon(loop, settings) as daemon, open_gateway_of(daemon) as gateway:
        host, port = gateway.place()
        with connect(f"ws://{host}:{port}/ws/shout") as client:
            client.send("Is anybody there")
            assert client.recv(PATIENCE_SECONDS) == "IS ANYBODY THERE"


def test_it_works_with_a_bus_whose_places_are_relative(loop: Loop, tmp_path: Path) -> None:
    (tmp_path / "busd.toml").write_text('[gateway]\nenabled = true\nlisten = "127.0.0.1:0"\n')
    options = ["--loop", loop, "--config", "busd.toml", "--state", "state", "--json"]
    places = ["--listen", "unix:bus.sock", "--listen", "tcp://127.0.0.1:0"]
    process = start_busd(["serve", *options, *places], tmp_path, lambda: os.chdir(tmp_path))
    with closing(Daemon(process, tmp_path)) as daemon:
        daemon.path = str(tmp_path / daemon.path)
        try:
            with open_gateway_of(daemon) as gateway:
                gateway.until("running")
                token = gateway.run("gateway", "token", "new", "ann").strip()
                host, port = gateway.place()
            with connect(f"ws://{host}:{port}/ws/ai?token={token}") as client:
                assert json.loads(client.recv(PATIENCE_SECONDS))["type"] == "welcome"
        finally:
            assert daemon.stop() == 0


def test_tokens_are_made_listed_and_revoked(gateway: Gateway) -> None:
    token = gateway.run("gateway", "token", "new", "ann").strip()
    assert token.startswith("busd_")
    assert gateway.run("gateway", "token", "ls").splitlines()[1].split()[0] == "ann"
    with pytest.raises(CallRefused, match="there is a token 'ann' already"):
        gateway.bus.call("gateway.newToken", {"name": "ann"})
    gateway.run("gateway", "token", "revoke", "ann")
    assert gateway.bus.call("gateway.listTokens") == {"tokens": []}


def test_a_token_of_the_gateway_is_none_of_the_bus(daemon: Daemon, gateway: Gateway) -> None:
    token = gateway.bus.call("gateway.newToken", {"name": "ann"})["token"]
    address = f"tcp://127.0.0.1:{daemon.port}"
    with pytest.raises(CallRefused) as refused, SyncClient("x:1", address=address, token=token):
        pass
    assert refused.value.code == -32005


def test_its_settings_are_for_its_user_only(daemon: Daemon, gateway: Gateway) -> None:
    file = daemon.folder / "state/gateway/settings.json"
    assert file.stat().st_mode & 0o077 == 0
