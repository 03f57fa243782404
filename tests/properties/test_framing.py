"""Framing gives the same frames however the bytes are cut, and keeps its limits."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.client import ClientProtocol
from websockets.http11 import Request
from websockets.uri import parse_uri
from websockets.utils import apply_mask

from busd.wire.interfaces import Framer
from busd.wire.lines import JOIN_BYTES, LineFramer
from busd.wire.websocket import ClientFramer, ServerFramer
from tests.properties.json_texts import chunks_of

LIMIT = 20


def _feed(framer: Framer, chunks: list[bytes]) -> list[bytes]:
    """Feed until the framer has had enough, as a connection does."""
    frames: list[bytes] = []
    for chunk in chunks:
        if chunk and framer.violation is None:
            frames += [frame for frame in framer.feed(chunk) if frame is not None]
    return frames


_LINE = st.binary(max_size=6) | st.integers(LIMIT - 2, LIMIT + 3).map(lambda n: b"x" * n)
_LINE_END = st.sampled_from([b"\n", b"\r\n", b"\n\n", b""])
_STREAM = st.lists(st.tuples(_LINE, _LINE_END).map(b"".join), max_size=8).map(b"".join)


@given(st.data(), _STREAM)
def test_lines_are_the_same_however_they_are_cut(data: st.DataObject, stream: bytes) -> None:
    whole, cut = LineFramer(LIMIT), LineFramer(LIMIT)
    frames = _feed(whole, [stream])
    assert _feed(cut, data.draw(chunks_of(stream))) == frames
    assert (whole.violation is None) == (cut.violation is None)


@given(st.data(), _STREAM)
def test_lines_are_what_splitting_at_newlines_gives(data: st.DataObject, stream: bytes) -> None:
    framer = LineFramer(LIMIT)
    frames = _feed(framer, data.draw(chunks_of(stream)))
    lines = stream.split(b"\n")  # the last one has not ended yet
    too_long = [i for i, line in enumerate(lines) if len(line.removesuffix(b"\r")) > LIMIT]
    assert frames == lines[:-1][: too_long[0] if too_long else None]
    assert (framer.violation is not None) == bool(too_long)


@given(st.lists(st.binary(min_size=1, max_size=300), max_size=20))
def test_lines_never_hold_more_than_the_limit(chunks: list[bytes]) -> None:
    framer = LineFramer(LIMIT)
    for chunk in chunks:
        _feed(framer, [chunk])
        assert len(framer._partial) <= LIMIT + 1  # a carriage return may be the last byte


@given(st.lists(st.text(st.characters(codec="utf-8", exclude_characters="\n"))))
def test_lines_come_out_as_they_were_put_in(texts: list[str]) -> None:
    frames = [text.encode() for text in texts]
    encoded = b"".join(LineFramer(LIMIT).encode(list(frames))) if frames else b""
    assert _feed(LineFramer(10**6), [encoded]) == frames


@pytest.mark.parametrize("size", [0, 1, JOIN_BYTES, JOIN_BYTES + 1, 10**6])
def test_a_line_of_any_size_comes_out_as_it_was_put_in(size: int) -> None:
    frame = b"x" * size
    for frames in ([frame], [frame, b"y"], [b"y", frame, frame]):
        encoded = b"".join(LineFramer(LIMIT).encode(list(frames)))
        assert _feed(LineFramer(10**7), [encoded]) == frames


@pytest.mark.parametrize("size", [0, 125, 126, 65_535, 65_536, 10**6])
def test_a_web_socket_message_of_any_size_comes_out_as_it_was_put_in(size: int) -> None:
    client, server = ClientFramer("ws://localhost/", 10**7), ServerFramer(10**7, _admit_all)
    _feed(server, client.encode([]))
    _feed(client, server.encode([]))
    frame = b"x" * size
    for frames in ([frame], [frame, b"y"], [b"y", frame, frame]):
        assert _feed(server, client.encode(list(frames))) == frames
        assert _feed(client, server.encode(list(frames))) == frames


def _admit_all(request: Request) -> None:
    """Let everybody in."""


# A message as the fragments that it is sent in; texts around the limit are likely.
_TEXT = st.text(max_size=8) | st.integers(LIMIT - 2, LIMIT + 2).map(lambda n: "x" * n)
_MESSAGES = st.lists(st.lists(_TEXT.map(str.encode), min_size=1, max_size=3), max_size=6)


def _client_bytes(messages: list[list[bytes]], ping_every: int) -> bytes:
    """Return what a real client sends for these messages, from its handshake on."""
    client = ClientProtocol(parse_uri("ws://localhost:7892/"), max_size=None)
    client.send_request(client.connect())
    request = b"".join(client.data_to_send())
    server = ServerFramer(LIMIT, _admit_all)
    _feed(server, [request])
    for answer in server.encode([]):
        client.receive_data(answer)
    for number, fragments in enumerate(messages):
        _send(client, fragments)
        if number % ping_every == 0:
            client.send_ping(b"still there?")
    return request + b"".join(client.data_to_send())


def _send(client: ClientProtocol, fragments: list[bytes]) -> None:
    client.send_text(fragments[0], fin=len(fragments) == 1)
    for place, fragment in enumerate(fragments[1:], 2):
        client.send_continuation(fragment, fin=place == len(fragments))


@given(st.data(), _MESSAGES, st.integers(1, 3))
def test_web_socket_messages_are_the_same_however_they_are_cut(
    data: st.DataObject, messages: list[list[bytes]], ping_every: int
) -> None:
    stream = _client_bytes(messages, ping_every)
    framer = ServerFramer(LIMIT, _admit_all)
    frames = _feed(framer, data.draw(chunks_of(stream)))
    wanted = [b"".join(fragments) for fragments in messages]
    too_long = [i for i, message in enumerate(wanted) if len(message) > LIMIT]
    assert frames == wanted[: too_long[0] if too_long else None]
    assert (framer.violation is not None) == bool(too_long)
    if framer.violation is not None:
        assert framer.violation.rule == "max_frame_bytes"


def _frame(payload: bytes, looks_like: bytes) -> bytes:
    """Return a text frame whose masked payload begins with bytes that could begin a frame."""
    mask = bytes(a ^ b for a, b in zip(payload.ljust(4)[:4], looks_like, strict=True))
    size = len(payload)
    header = bytes((0x81, 0x80 | size)) if size < 126 else b"\x81\xfe" + size.to_bytes(2, "big")
    return header + mask + apply_mask(payload, mask)


_HEADERS = st.sampled_from([b"\x81\x85\0\0", b"\x81\x80\0\0", b"\x81\xfe\0\1", b"\x89\x80\0\0"])
_PAYLOADS = st.integers(4, 300).map(lambda size: b"x" * size)


@given(st.data(), st.lists(st.tuples(_PAYLOADS, _HEADERS), max_size=4))
def test_no_payload_is_taken_for_a_frame_wherever_it_is_cut(
    data: st.DataObject, messages: list[tuple[bytes, bytes]]
) -> None:
    client, server = ClientFramer("ws://localhost/", 1_000), ServerFramer(1_000, _admit_all)
    _feed(server, client.encode([]))
    server.encode([])
    stream = b"".join(_frame(payload, looks_like) for payload, looks_like in messages)
    # Cuts after the header and after the mask are the ones to fear; the others come by chance.
    ends = [0]
    for payload, _ in messages:
        header = 2 if len(payload) < 126 else 4
        ends += [ends[-1] + 2, ends[-1] + header, ends[-1] + header + 4]
        ends.append(ends[-1] + len(payload))
    cuts = sorted(data.draw(st.sets(st.sampled_from(ends) | st.integers(0, len(stream)))))
    chunks = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    assert _feed(server, chunks) == [payload for payload, _ in messages]
    assert server.violation is None
