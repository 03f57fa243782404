"""Callbacks go only to hosts that prove their name."""

from __future__ import annotations

import ssl
import time
from pathlib import Path

import pytest

from busd import Refuse
from busd.bridge import MaybePosted
from busd_plugins.hook.callbacks import Callbacks
from busd_plugins.hook.callers import Callers
from busd_plugins.hook.messages import Answer
from busd_plugins.hook.store import Request
from tests.plugins.hook.listener import Listener, open_listener
from tests.plugins.hook.place import write_secrets
from tests.wire.tls.authority import Authority

pytestmark = pytest.mark.anyio
HOST = "callback.example"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "authority")


def server_context(authority: Authority) -> ssl.SSLContext:
    issued = authority.issue("listener", hosts=(HOST,))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(issued.certificate, issued.key)
    return context


async def deliver(folder: Path, listener: Listener, host: str = HOST, age: float = 0) -> None:
    """Post an answer to a host whose name leads to the listener."""

    async def resolve(name: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    files = write_secrets(folder)
    callers = Callers(files["secrets"], files["tokens"], 300)
    callbacks = Callbacks(callers, seconds=60, allow_private=True, resolve=resolve)
    request = Request("1", "ci", b"", "ci/1", f"https://{host}:{listener.port}/x?y=z")
    answer = Answer(id="a", text="hello", sender="agent:a")
    await callbacks.deliver(request, answer, time.time() - age, is_repeat=False)


async def test_a_host_that_proves_its_name_gets_the_answer(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.ca_file))
    async with open_listener(server_context(authority)) as listener:
        await deliver(tmp_path, listener)
        assert listener.texts() == ["hello"]
        assert listener.got[0].headers["host"] == f"{HOST}:{listener.port}"


async def test_a_host_that_does_not_prove_its_name_gets_nothing(
    tmp_path: Path, authority: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_listener(server_context(authority)) as listener:
        for trusted, host in (("", HOST), (str(authority.ca_file), "another.example")):
            monkeypatch.setenv("SSL_CERT_FILE", trusted)
            with pytest.raises(Refuse, match="certificate") as refused:
                await deliver(tmp_path, listener, host)
            assert refused.value.retry_seconds == 1
            assert not isinstance(refused.value, MaybePosted)  # nothing was posted
        assert not listener.got


async def test_an_answer_that_nobody_takes_for_long_is_given_up(
    tmp_path: Path, authority: Authority
) -> None:
    async with open_listener(server_context(authority)) as listener:
        with pytest.raises(Refuse, match="did not accept it within 60 seconds") as refused:
            await deliver(tmp_path, listener, age=61)
        assert refused.value.retry_seconds is None
