"""The connection to a service manager when that is slow, broken, hostile or away."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest
import structlog
from jeepney import new_error, new_method_return
from structlog.testing import capture_logs

from busd.supervise.dbus import BrokenLink, DBusError, open_dbus
from busd.supervise.manager_link import LinkLost, ManagerLink, ManagerSilent, Refused
from busd.supervise.service_manager import ServiceManager
from tests.supervise.processes import patience
from tests.supervise.scripted_manager import (
    MANAGER,
    Behaviour,
    Client,
    header_of,
    job_removed,
    serve,
)

pytestmark = pytest.mark.anyio

JOB = "/org/freedesktop/systemd1/job/7"
START = ("StartUnit", "ss", ("w.service", "fail"))


@pytest.fixture
def socket() -> Iterator[Path]:
    # Not pytest's folder: the path of a socket has at most 107 bytes.
    with tempfile.TemporaryDirectory(prefix="busd-dbus-") as folder:
        yield Path(folder) / "systemd/private"


async def why_lost(socket: Path, behaviour: Behaviour) -> str:
    """Return why a connection ended while a call waited for its reply."""
    problems: list[str] = []

    async def call() -> None:
        with pytest.raises(BrokenLink) as problem:
            await connection.call(MANAGER, "Ping")
        problems.append(str(problem.value))

    with patience():
        async with (
            serve(socket, behaviour),
            open_dbus(socket, lambda *_: None) as connection,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(call)
            why = await connection.serve()
    assert problems == [why]
    return why


async def test_a_call_fails_when_the_connection_ends(socket: Path) -> None:
    async def close(client: Client) -> None:
        await client.next_call("Ping")

    assert await why_lost(socket, close) == "the connection was closed"


async def test_a_message_without_end_is_not_read(socket: Path) -> None:
    async def flood(client: Client) -> None:
        await client.next_call("Ping")
        await client.send_bytes(header_of(64 * 1024 * 1024))
        await client.wait_for_end()

    assert await why_lost(socket, flood) == "a message has more than 4194304 bytes"


async def test_a_large_message_after_a_small_one_is_not_read(socket: Path) -> None:
    async def flood(client: Client) -> None:
        await client.next_call("Ping")
        small = job_removed(JOB, "done").serialise(1)
        await client.send_bytes(small + header_of(64 * 1024 * 1024))
        await client.wait_for_end()

    assert await why_lost(socket, flood) == "a message has more than 4194304 bytes"


async def test_bytes_that_are_no_message_end_the_connection(socket: Path) -> None:
    async def garble(client: Client) -> None:
        await client.next_call("Ping")
        await client.send_bytes(b"GET / HTTP/1.1\r\n\r\n")
        await client.wait_for_end()

    assert (await why_lost(socket, garble)).startswith("a message cannot be decoded: ")


async def test_a_manager_that_reads_nothing_is_given_up(
    socket: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("busd.supervise.dbus._SEND_SECONDS", 0.1)

    async def read_nothing(client: Client) -> None:
        await anyio.sleep_forever()

    with patience():
        async with serve(socket, read_nothing), open_dbus(socket, lambda *_: None) as connection:
            with pytest.raises(BrokenLink, match=r"^nothing could be sent in 0.1 s$"):
                await connection.call(MANAGER, "Ping", "ay", (bytes(2**22),))
            assert await connection.serve() == "the connection was closed"
            with pytest.raises(BrokenLink, match=r"^the connection is closed$"):
                await connection.call(MANAGER, "Ping")


async def test_what_cannot_be_encoded_is_refused_and_the_connection_stays(socket: Path) -> None:
    async def answer(client: Client) -> None:
        call = await client.next_call("Ping")
        await client.send(new_error(call, "not.Today", "s", ("no",)))
        await client.wait_for_end()

    with patience():
        async with (
            serve(socket, answer),
            open_dbus(socket, lambda *_: None) as connection,
            anyio.create_task_group() as tasks,
        ):
            tasks.start_soon(connection.serve)
            with pytest.raises(DBusError, match=r"^it cannot be sent: "):
                await connection.call(MANAGER, "Ping", "s", ("\udcff",))
            with pytest.raises(DBusError, match=r"^no$"):
                await connection.call(MANAGER, "Ping")
            connection.close()


async def test_a_client_that_is_not_authenticated_says_why(socket: Path) -> None:
    socket.parent.mkdir()
    async with await anyio.create_unix_listener(socket) as listener:

        async def reject() -> None:
            async with await listener.accept() as stream:
                await stream.receive()
                await stream.send(b"REJECTED EXTERNAL\r\n")

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(reject)
            with pytest.raises(BrokenLink, match="REJECTED EXTERNAL"), patience():
                async with open_dbus(socket, lambda *_: None):
                    pass


# -- the link --------------------------------------------------------------------------------------


async def subscribe(client: Client) -> None:
    await client.accept_subscription()
    await client.wait_for_end()


async def test_a_manager_that_never_answers_is_not_waited_for(socket: Path) -> None:
    link = ManagerLink(socket)
    with patience():
        async with serve(socket, subscribe):
            with pytest.raises(ManagerSilent) as problem:
                async with link.opened():
                    await link.call(MANAGER, "Ping", "", (), seconds=0.1)
    assert str(problem.value) == "Ping: no answer in 0.1 s"


async def test_a_manager_that_is_away_is_named(socket: Path) -> None:
    link = ManagerLink(socket)
    with pytest.raises(ManagerSilent) as problem, patience():
        async with link.opened():
            await link.call(MANAGER, "Ping", "", (), seconds=0.1)
    assert str(problem.value) == f"Ping: {socket}: No such file or directory"


async def test_without_a_task_that_serves_it_a_call_fails_at_once(socket: Path) -> None:
    with pytest.raises(LinkLost, match=r"^Ping: not connected$"):
        await ManagerLink(socket).call(MANAGER, "Ping", "", ())


async def test_a_lost_connection_is_opened_again_and_calls_wait_for_it(socket: Path) -> None:
    async def leave(client: Client) -> None:
        await client.accept_subscription()
        await client.next_call("Ping")

    async def answer(client: Client) -> None:
        await client.accept_subscription()
        await client.send(new_method_return(await client.next_call("Ping"), "s", ("here",)))
        await client.wait_for_end()

    changes = []
    link = ManagerLink(socket)
    link.notify(lambda *_: None, lambda: changes.append(True))
    structlog.reset_defaults()
    with patience(), capture_logs() as said:
        async with serve(socket, leave, answer), link.opened():
            with pytest.raises(LinkLost, match=r"^Ping: the connection was closed$"):
                await link.call(MANAGER, "Ping", "", ())
            assert await link.call(MANAGER, "Ping", "", ()) == ("here",)
    assert changes == [True] * 3  # opened, lost, opened
    (line,) = said
    assert line["event"] == "service_manager.lost"
    assert line["reason"] == "the connection was closed"


async def test_a_job_that_ends_with_its_reply_is_not_missed(socket: Path) -> None:
    async def answer(client: Client) -> None:
        await client.accept_subscription()
        reply = new_method_return(await client.next_call("StartUnit"), "o", (JOB,))
        await client.send(reply, job_removed(JOB, "failed"))
        await client.wait_for_end()

    link = ManagerLink(socket)
    with patience():
        async with serve(socket, answer), link.opened():
            assert await link.run_job(*START, seconds=5) == "failed"


async def test_a_job_that_nobody_waits_for_is_forgotten(socket: Path) -> None:
    async def start(client: Client) -> None:
        await client.accept_subscription()
        await client.send(new_method_return(await client.next_call("StartUnit"), "o", (JOB,)))
        await client.wait_for_end()

    link = ManagerLink(socket)
    with patience():
        async with serve(socket, start), link.opened():
            with pytest.raises(ManagerSilent, match=r"w.service has not done it in 0.1 s$"):
                await link.run_job(*START, seconds=0.1)
            assert not link._jobs


async def test_a_job_whose_connection_is_lost_has_no_result(socket: Path) -> None:
    async def leave(client: Client) -> None:
        await client.accept_subscription()
        await client.send(new_method_return(await client.next_call("StartUnit"), "o", (JOB,)))

    link = ManagerLink(socket)
    with patience():
        async with serve(socket, leave), link.opened():
            with pytest.raises(LinkLost, match=r"^StartUnit: the connection was (lost|closed)$"):
                await link.run_job(*START, seconds=5)


async def test_an_error_is_an_answer(socket: Path) -> None:
    async def refuse(client: Client) -> None:
        await client.accept_subscription()
        call = await client.next_call("StopUnit")
        await client.send(new_error(call, "org.freedesktop.systemd1.NoSuchUnit", "s", ("no",)))
        await client.wait_for_end()

    link = ManagerLink(socket)
    with patience():
        async with serve(socket, refuse), link.opened():
            with pytest.raises(ManagerSilent) as problem:
                await link.run_job("StopUnit", "ss", ("w.service", "replace"), seconds=5)
    assert isinstance(problem.value, Refused)
    assert problem.value.name == "org.freedesktop.systemd1.NoSuchUnit"


# -- what is said of a socket ----------------------------------------------------------------------


async def test_a_socket_that_is_not_there_is_named(socket: Path) -> None:
    with pytest.raises(ManagerSilent) as problem:
        await ServiceManager("user", runtime=socket.parent.parent).probe()
    assert str(problem.value) == f"{socket}: No such file or directory"


@pytest.mark.parametrize("closed", [".", "systemd", "systemd/private"])
async def test_a_socket_that_is_not_ours_is_named(socket: Path, closed: str) -> None:
    runtime = socket.parent.parent
    runtime.chmod(0o755)
    async with serve(socket):
        (runtime / closed).chmod(0)
        user = os.geteuid()
        if user == 0:
            os.seteuid(65534)  # root may do everything
        try:
            with pytest.raises(ManagerSilent) as problem:
                await ServiceManager("user", runtime=runtime).probe()
        finally:
            os.seteuid(user)
            (runtime / closed).chmod(0o700)
    assert str(problem.value) == f"{socket}: Permission denied"
