"""Where callbacks may go, when the name servers are those of an attacker."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from busd import Refuse
from busd.bridge import MaybePosted
from busd_plugins.hook.callbacks import Callbacks
from busd_plugins.hook.callers import Callers
from busd_plugins.hook.destinations import (
    BadDestination,
    Unresolved,
    fault_of,
    find_destination,
)
from busd_plugins.hook.messages import Answer
from busd_plugins.hook.store import Request
from tests.plugins.hook.listener import open_listener

pytestmark = pytest.mark.anyio
ROOT = Path(__file__).parents[3]
PUBLIC = "93.184.215.14"


@pytest.mark.parametrize(
    "address",
    [
        *("127.0.0.1", "127.8.8.8", "0.0.0.0", "10.1.2.3", "172.16.0.1", "192.168.1.1"),
        *("169.254.169.254", "100.64.0.1", "192.0.2.1", "198.18.0.1", "224.0.0.1", "240.0.0.1"),
        *("255.255.255.255", "::", "::1", "fe80::1", "fe80::1%eth0", "fc00::1", "ff02::1"),
        *("::ffff:127.0.0.1", "::ffff:10.0.0.1", "::127.0.0.1", "64:ff9b::7f00:1"),
        *("2002:7f00:1::", "2001:0:7f00:1::", "2001:db8::1"),
    ],
)
def test_an_address_that_is_not_public_gets_nothing(address: str) -> None:
    assert "no address of the public network" in fault_of(address)


@pytest.mark.parametrize("address", [PUBLIC, "2606:2800:21f:cb07:6820:80da:af6b:8b2c"])
def test_a_public_address_may_get_callbacks(address: str) -> None:
    assert not fault_of(address)


def test_a_public_address_of_this_host_gets_nothing() -> None:
    """A host of its own: a network namespace in which loopback has a public address."""
    code = f"from busd_plugins.hook.destinations import fault_of; print(fault_of({PUBLIC!r}))"
    here = f"from busd.plugin.loader import find_candidates; find_candidates(); {code}"
    script = 'ip link set lo up && ip addr add "$1" dev lo && exec "$2" -c "$3"'
    words = ["unshare", "-rn", "sh", "-c", script, "sh", f"{PUBLIC}/32", sys.executable, here]
    if not (shutil.which("unshare") and shutil.which("ip")):
        pytest.skip("needs unshare and ip")
    if subprocess.run(["unshare", "-rn", "true"], check=False).returncode:
        pytest.skip("may not create a network namespace")
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == f"{PUBLIC}, which is an address of this host\n", done.stderr


async def test_one_private_address_of_a_name_is_enough_to_refuse_it() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        return [PUBLIC, "127.0.0.1"]

    with pytest.raises(BadDestination, match=r"127\.0\.0\.1"):
        await find_destination("https://evil.example/", allow_private=False, resolve=resolve)


async def test_a_name_that_cannot_be_resolved_is_tried_later() -> None:
    async def resolve(host: str, port: int) -> list[str]:
        raise socket.gaierror(socket.EAI_AGAIN, "try again")

    with pytest.raises(Unresolved, match=r"late\.example"):
        await find_destination("https://late.example/", allow_private=False, resolve=resolve)


async def test_a_name_that_is_bound_to_this_host_later_gets_nothing() -> None:
    """The name is public when the message is posted, and this host's when it is answered."""
    answers = [[PUBLIC], ["127.0.0.1"]]

    async def resolve(host: str, port: int) -> list[str]:
        return answers.pop(0)

    callbacks = Callbacks(Callers({}, {}, 300), seconds=3_600, allow_private=False, resolve=resolve)
    async with open_listener() as listener:
        url = f"https://evil.example:{listener.port}/"
        await callbacks.check(url)
        request = Request("1", "ci", b"", "ci/1", url)
        answer = Answer(id="a", text="secret", sender="agent:a")
        with pytest.raises(Refuse, match="forbidden") as refused:
            await callbacks.deliver(request, answer, since=2e9, is_repeat=False)
        assert refused.value.retry_seconds is None
        assert not isinstance(refused.value, MaybePosted)
        assert not listener.got


async def test_the_connection_goes_to_the_address_that_was_checked() -> None:
    """The name is resolved once for each attempt; a second answer would be the attacker's."""
    asked: list[str] = []

    async def resolve(host: str, port: int) -> list[str]:
        asked.append(host)
        return ["127.0.0.1"]

    destination = await find_destination(
        "http://nowhere.invalid:1/x?y=z", allow_private=True, resolve=resolve
    )
    assert (destination.addresses, destination.authority) == (["127.0.0.1"], "nowhere.invalid:1")
    assert destination.target == "/x?y=z"
    assert asked == ["nowhere.invalid"]
