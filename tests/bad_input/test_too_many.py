"""More connections than there is room for."""

from __future__ import annotations

import resource
import select
from contextlib import ExitStack

import pytest

from tests.bad_input.pressure import MIB, bounded_memory, raise_file_limit, until
from tests.daemons import PATIENCE_SECONDS, Loop, open_daemon
from tests.wire_peers import Closed, Transport, join_by, open_unix


def test_no_free_descriptors_pause_the_bus_and_do_not_end_it(loop: Loop) -> None:
    def allow_few_files() -> None:
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))

    with open_daemon(loop, before=allow_few_files) as daemon, ExitStack() as opened:
        witness = join_by(daemon, "unix", "agent:witness", opened)
        with ExitStack() as crowd:
            for _ in range(100):
                crowd.enter_context(open_unix(daemon.path))
            until(lambda: "listener.paused" in daemon.log(), witness)
            assert daemon.open_files() == 64
        newcomer = join_by(daemon, "tcp", "agent:newcomer", opened)
        newcomer.expect_nothing()
        witness.expect_nothing()


def test_a_connection_over_the_limit_is_closed_at_once(
    loop: Loop, transport: Transport, opened: ExitStack
) -> None:
    with open_daemon(loop, {"wire.max_connections": 2}) as daemon, ExitStack() as inner:
        first = join_by(daemon, transport, "agent:first", inner)
        second = join_by(daemon, transport, "agent:second", inner)
        with pytest.raises((Closed, BrokenPipeError)):
            join_by(daemon, transport, "agent:third", inner)
        second.close()

        def has_room() -> bool:
            try:
                join_by(daemon, transport, "agent:third", inner)
            except (Closed, BrokenPipeError):
                return False
            return True

        until(has_room, first)


def test_ten_thousand_connections_that_never_initialize_are_closed_in_time(loop: Loop) -> None:
    number = raise_file_limit(10_000)
    settings = {"wire.first_request_seconds": 3.0}
    with open_daemon(loop, settings) as daemon, ExitStack() as opened:
        witness = join_by(daemon, "unix", "agent:witness", opened)
        with bounded_memory(daemon, 160 * MIB), select.epoll() as ended:
            waiting = {}
            for _ in range(number):
                sock = opened.enter_context(open_unix(daemon.path))
                waiting[sock.fileno()] = sock
                ended.register(sock.fileno(), select.EPOLLIN)
            witness.expect_nothing()
            while waiting:
                events = ended.poll(PATIENCE_SECONDS)
                assert events, f"{len(waiting)} of {number} are still open"
                for descriptor, _ in events:
                    ended.unregister(descriptor)
                    assert waiting.pop(descriptor).recv(1) == b""
            witness.expect_nothing()
