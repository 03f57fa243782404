"""TLS without sockets: what is carried, how it is cut, and how it ends."""

from __future__ import annotations

import random
import ssl

import pytest

from busd.testing.transport import Soon
from busd.wire.connection import Connection, WireLimits
from busd.wire.lines import LineFramer
from busd.wire.tls_settings import make_client_context
from busd.wire.turns import Turns
from tests.wire.tls.authority import Authority
from tests.wire.tls.ends import LIMITS, MIB, MemoryPair, QuietTalk

HELLO_BYTES = 65_536
VERSIONS = [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]


@pytest.fixture
def pair(server_context: ssl.SSLContext, client_context: ssl.SSLContext) -> MemoryPair:
    """The bus, with Python's own TLS as its client, after the handshake."""
    pair = MemoryPair(server_context, client_context)
    pair.shake_hands()
    return pair


@pytest.fixture
def client_pair(server_context: ssl.SSLContext, client_context: ssl.SSLContext) -> MemoryPair:
    """A client of ours, with Python's own TLS as its bus, before the handshake."""
    return MemoryPair(client_context, server_context, host="localhost")


# What is carried


@pytest.mark.parametrize("chunk_bytes", [1, 2, 7, 1_000, 16_384, 65_536])
def test_frames_arrive_however_the_ciphertext_is_cut(
    chunk_bytes: int, server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    pair = MemoryPair(server_context, client_context, chunk_bytes=chunk_bytes)
    pair.shake_hands()
    frames = [b"a", b"b" * 300, b"c" * 16_383, b"d" * 16_384, b"e" * 50_000]
    pair.send(pair.peer.encrypt(b"\n" + b"\n".join(frames) + b"\n"))
    assert pair.talk.frames == frames  # an empty line is for nobody
    pair.talk.say(*frames)
    assert pair.peer.plain == b"\n".join(frames) + b"\n"


def test_a_frame_of_a_mebibyte_arrives_in_both_directions(pair: MemoryPair) -> None:
    frame = bytes(range(11, 255)) * (MIB // 244)
    pair.send(pair.peer.encrypt(frame + b"\n"))
    pair.talk.say(frame)
    assert pair.talk.frames == [frame]
    assert pair.peer.plain == frame + b"\n"


def test_many_small_records_in_one_chunk_arrive_in_order(pair: MemoryPair) -> None:
    records = [pair.peer.encrypt(b"%d\n" % number) for number in range(1_000)]
    pair.send(b"".join(records))
    assert pair.talk.frames == [b"%d" % number for number in range(1_000)]


def test_a_flush_is_one_write_below_whatever_it_holds(pair: MemoryPair) -> None:
    for frames in ([b"a", b"b", b"c"], [b"d" * MIB]):
        pair.writes.clear()
        pair.talk.say(*frames)
        assert len(pair.writes) == 1


def test_answers_to_a_whole_chunk_are_one_write_below(pair: MemoryPair) -> None:
    pair.talk.echoes = True
    pair.writes.clear()
    pair.send(b"".join(pair.peer.encrypt(b"%d\n" % number) for number in range(100)))
    assert len(pair.writes) == 1
    assert pair.peer.plain.count(b"\n") == 100


@pytest.mark.parametrize("version", VERSIONS)
def test_both_versions_of_tls_are_spoken(
    version: ssl.TLSVersion, server_context: ssl.SSLContext, authority: Authority
) -> None:
    pair = MemoryPair(server_context, speaking(version, authority))
    pair.shake_hands()
    pair.talk.echoes = True
    pair.send(pair.peer.encrypt(b"hello\n"))
    assert pair.peer.plain == b"hello\n"
    assert pair.peer.tls.version() == version.name.replace("v1_", "v1.")
    assert pair.peer.tls.compression() is None


def speaking(version: ssl.TLSVersion, authority: Authority) -> ssl.SSLContext:
    """Return what a client shakes hands with that speaks this version of TLS only."""
    context = make_client_context(authority.ca_file)
    context.minimum_version = context.maximum_version = version
    return context


def test_no_session_can_be_resumed(pair: MemoryPair) -> None:
    pair.talk.say(b"a ticket would have come before this")
    session = pair.peer.tls.session
    assert session is None or not session.has_ticket


# The handshake


def test_what_a_client_says_at_once_waits_for_the_handshake(client_pair: MemoryPair) -> None:
    client_pair.talk.say(b"too early")
    assert client_pair.tls.get_write_buffer_size() == len(b"too early\n")
    client_pair.exchange()
    assert client_pair.peer.plain == b"too early\n"
    assert client_pair.tls.get_write_buffer_size() == 0


def test_what_waits_for_the_handshake_counts_as_unread_and_is_carried_after_it(
    client_pair: MemoryPair,
) -> None:
    frame = b"x" * LIMITS.max_queue_bytes
    client_pair.talk.say(frame)
    assert client_pair.connection.is_clogged
    client_pair.exchange()
    assert not client_pair.connection.is_clogged
    assert client_pair.peer.plain == frame + b"\n"
    client_pair.send(client_pair.peer.encrypt(b"and it reads again\n"))
    assert client_pair.talk.frames == [b"and it reads again"]


def test_too_much_that_waits_for_the_handshake_ends_the_connection(
    client_pair: MemoryPair,
) -> None:
    for _ in range(17):
        client_pair.talk.say(b"x" * MIB)
    assert client_pair.talk.reason == "does not read"
    assert client_pair.talk.is_gone


def test_a_client_that_closes_before_the_handshake_still_says_what_it_has_said(
    client_pair: MemoryPair,
) -> None:
    client_pair.talk.say(b"last words")
    client_pair.connection.close()
    client_pair.exchange()
    assert client_pair.peer.plain == b"last words\n"
    assert client_pair.peer.has_goodbye


def test_a_client_that_closes_before_the_handshake_with_nothing_to_say_is_gone_at_once(
    client_pair: MemoryPair,
) -> None:
    client_pair.connection.close()
    assert client_pair.has_end
    client_pair.exchange()
    assert not client_pair.peer.is_open


@pytest.mark.parametrize("plain", [b'{"jsonrpc":"2.0"}\n', b"GET / HTTP/1.1\r\n\r\n", b"\n", b"\0"])
def test_plain_text_ends_the_connection_and_is_answered_by_nothing(
    plain: bytes, server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    pair = MemoryPair(server_context, client_context)
    pair.send(plain)
    assert pair.talk.reason == "plain text where TLS is spoken"
    assert pair.has_end
    assert pair.writes == []
    pair.send(b"and more of it")
    pair.below.feed_eof()
    assert pair.talk.is_gone


def test_a_bus_that_answers_in_plain_text_is_left(client_pair: MemoryPair) -> None:
    client_pair.send(b'{"jsonrpc":"2.0","id":null}\n')
    assert client_pair.talk.reason == "plain text where TLS is spoken"
    assert client_pair.talk.is_gone


def test_bytes_that_only_begin_like_tls_end_the_connection(
    server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    pair = MemoryPair(server_context, client_context)
    pair.send(b"\x16 and then some text that is no handshake")
    assert pair.talk.reason
    assert pair.has_end


def test_a_handshake_without_end_is_cut_off(
    server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    pair = MemoryPair(server_context, client_context, limits=WireLimits())
    hello = b"\x01" + (130_000).to_bytes(3) + b"\x03\x03" + bytes(129_998)
    for at in range(0, len(hello), 16_000):
        fragment = hello[at : at + 16_000]
        pair.send(b"\x16\x03\x01" + len(fragment).to_bytes(2) + fragment)
    assert pair.talk.reason == f"TLS handshake over {HELLO_BYTES} bytes"


def test_much_that_follows_a_handshake_in_the_same_chunk_is_not_part_of_it(
    server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    pair = MemoryPair(server_context, client_context, limits=WireLimits(), chunk_bytes=MIB)
    pair.peer.take(b"")
    pair.send(pair.peer.give())
    frame = b"x" * HELLO_BYTES * 3
    pair.send(pair.peer.encrypt(frame + b"\n"))  # behind the last part of the handshake
    assert pair.talk.frames == [frame]


def test_a_handshake_that_is_dropped_in_the_middle_stays_dropped(
    server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    pair = MemoryPair(server_context, client_context)
    pair.peer.take(b"")
    pair.connection.abort("no initialize in time")  # as the sweeper does
    pair.exchange()
    assert pair.talk.is_gone
    assert not pair.peer.is_open


def test_a_connection_that_was_closed_before_it_was_made_says_nothing(
    server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    connection = Connection(LineFramer(MIB), [], Turns(Soon().run), WireLimits())
    connection.session = talk = QuietTalk(connection)
    connection.close(reason="the bus is stopping")
    pair = MemoryPair(client_context, server_context, host="localhost", connection=connection)
    assert talk.reason == "the bus is stopping"
    assert pair.has_end
    assert pair.writes == []


def test_a_peer_that_leaves_during_the_handshake_is_gone(
    server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    pair = MemoryPair(server_context, client_context)
    pair.peer.take(b"")
    pair.send(pair.peer.give())
    pair.below.feed_eof()
    assert pair.talk.reason == "the peer left during the TLS handshake"
    assert pair.talk.is_gone


# The end


def test_a_close_says_goodbye_and_throws_away_what_still_comes(pair: MemoryPair) -> None:
    pair.talk.say(b"last words")
    pair.connection.close(reason="enough")
    assert pair.peer.plain == b"last words\n"
    assert pair.peer.has_goodbye
    assert pair.has_end
    pair.send(pair.peer.encrypt(b"too late\n"))
    assert pair.talk.frames == []
    assert not pair.talk.is_gone
    pair.send(pair.peer.goodbye())
    assert pair.talk.is_gone


def test_a_goodbye_of_the_peer_is_answered_by_one(pair: MemoryPair) -> None:
    pair.send(pair.peer.encrypt(b"one\n") + pair.peer.goodbye())
    assert pair.talk.frames == [b"one"]
    assert pair.talk.has_ended
    assert pair.peer.has_goodbye
    assert pair.talk.is_gone


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("is_cut_off", [False, True])
def test_answers_are_delivered_after_the_end_of_the_peer(
    is_cut_off: bool,
    version: ssl.TLSVersion,
    server_context: ssl.SSLContext,
    authority: Authority,
) -> None:
    pair = MemoryPair(server_context, speaking(version, authority))
    pair.shake_hands()
    pair.talk.keeps_open = True
    pair.send(pair.peer.encrypt(b"question\n"))
    if not is_cut_off:
        pair.send(pair.peer.goodbye())
    pair.below.feed_eof()
    assert pair.talk.has_ended
    assert not pair.talk.is_gone
    pair.talk.say(b"answer")
    assert pair.peer.plain == b"answer\n"
    assert pair.peer.has_goodbye
    assert pair.talk.is_gone


@pytest.mark.parametrize("is_damaged", [False, True])
def test_what_follows_the_frame_that_made_us_abort_is_thrown_away(
    is_damaged: bool, pair: MemoryPair
) -> None:
    pair.talk.aborts = True
    frame, end = pair.peer.encrypt(b"enough\n"), bytearray(pair.peer.goodbye())
    end[-1] ^= is_damaged
    pair.writes.clear()
    pair.send(frame + bytes(end))
    assert pair.talk.reason == "heard enough"
    assert not pair.talk.has_ended
    assert pair.talk.is_gone
    assert pair.writes == []


def test_what_follows_a_goodbye_is_thrown_away(pair: MemoryPair) -> None:
    pair.talk.keeps_open = True
    pair.send(pair.peer.goodbye() + b"\x17\x03\x03\x00\x05after")
    pair.send(b"and more")
    assert pair.talk.frames == []
    assert not pair.talk.reason


def test_an_abort_says_nothing(pair: MemoryPair) -> None:
    pair.writes.clear()
    pair.connection.abort("enough")
    pair.talk.say(b"too late")
    assert pair.talk.is_gone
    assert pair.writes == []
    assert not pair.peer.has_goodbye


def test_a_lost_connection_is_lost_with_its_reason(pair: MemoryPair) -> None:
    pair.below.lose(ConnectionResetError("reset by the peer"))
    pair.talk.say(b"too late")
    pair.tls.write(b"too late")
    assert pair.talk.reason == "reset by the peer"
    assert pair.talk.is_gone


def test_a_record_that_was_changed_on_the_way_ends_the_connection(pair: MemoryPair) -> None:
    good, bad = pair.peer.encrypt(b"good\n"), bytearray(pair.peer.encrypt(b"bad\n"))
    bad[-1] ^= 1
    pair.send(good + bytes(bad))
    assert pair.talk.frames == [b"good"]
    assert pair.talk.reason == "decryption failed or bad record mac"
    assert pair.peer.problem is not None  # it was told so
    assert pair.has_end


@pytest.mark.parametrize("is_client", [False, True])
def test_damage_anywhere_ends_the_connection_and_passes_up_only_what_was_said(
    is_client: bool, server_context: ssl.SSLContext, client_context: ssl.SSLContext
) -> None:
    contexts = (client_context, server_context) if is_client else (server_context, client_context)
    for seed in range(100):
        chance = random.Random(seed)
        pair = MemoryPair(
            *contexts,
            host="localhost" if is_client else None,
            chunk_bytes=chance.choice([1, 100, 65_536]),
        )
        damaged_step = chance.randrange(4)
        for step in range(4):
            if pair.peer.is_open and pair.peer.problem is None:
                pair.peer.tls.write(b"said\n")
            ciphertext = bytearray(pair.peer.give())
            if step == damaged_step:
                damage(ciphertext, chance)
            pair.send(bytes(ciphertext))
            pair.peer.take(b"")
        pair.below.feed_eof()
        assert set(pair.talk.frames) <= {b"said"}
        assert pair.talk.reason


def damage(ciphertext: bytearray, chance: random.Random) -> None:
    """Change a byte, cut off the end, or put something in."""
    at = chance.randrange(len(ciphertext) + 1)
    kind = chance.choice(["change", "cut", "add"])
    if kind == "change" and at < len(ciphertext):
        ciphertext[at] ^= 1 << chance.randrange(8)
    elif kind == "cut":
        del ciphertext[at:]
    else:
        ciphertext[at:at] = chance.randbytes(50)


def test_a_changed_record_behind_a_goodbye_of_ours_ends_the_waiting(pair: MemoryPair) -> None:
    pair.connection.close()
    bad = bytearray(pair.peer.encrypt(b"bad\n"))
    bad[-1] ^= 1
    pair.send(bytes(bad))
    assert pair.talk.is_gone


def test_a_peer_cannot_ask_for_another_handshake(
    server_context: ssl.SSLContext, authority: Authority
) -> None:
    assert server_context.options & ssl.OP_NO_RENEGOTIATION
    assert make_client_context(authority.ca_file).options & ssl.OP_NO_RENEGOTIATION


# Back-pressure


def test_a_peer_that_does_not_read_clogs_the_connection_until_it_does(pair: MemoryPair) -> None:
    pair.below.read(is_wanted=False)
    pair.talk.say(b"x" * MIB)
    pair.talk.say(b"y")
    assert pair.connection.is_clogged
    assert pair.tls.get_write_buffer_size() > MIB
    assert not pair.below.is_read_by_bus
    pair.below.read(is_wanted=True)
    assert not pair.connection.is_clogged
    assert pair.below.is_read_by_bus
    assert pair.peer.plain == b"x" * MIB + b"\ny\n"


def test_a_bus_that_reads_nothing_after_the_handshake_leaves_the_client_clogged_until_it_does(
    client_pair: MemoryPair,
) -> None:
    client_pair.talk.say(b"x" * LIMITS.max_queue_bytes)
    client_pair.below.read(is_wanted=False)
    client_pair.exchange()
    assert client_pair.connection.is_clogged
    assert not client_pair.below.is_read_by_bus
    client_pair.below.read(is_wanted=True)
    assert not client_pair.connection.is_clogged
    assert client_pair.below.is_read_by_bus


def test_a_peer_that_never_reads_is_dropped(pair: MemoryPair) -> None:
    pair.below.read(is_wanted=False)
    for _ in range(17):
        pair.talk.say(b"x" * MIB)
    assert pair.talk.reason == "does not read"
    assert pair.talk.is_gone
