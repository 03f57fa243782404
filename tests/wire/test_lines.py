"""Lines: how a stream is cut into frames, and what a frame too long gets."""

from __future__ import annotations

import pytest

from busd.errors import ProtocolViolation
from busd.wire.lines import JOIN_BYTES, LineFramer


def feed(framer: LineFramer, *chunks: bytes) -> list[bytes]:
    return [frame for chunk in chunks for frame in framer.feed(chunk) if frame is not None]


def test_a_chunk_may_hold_many_frames() -> None:
    assert feed(LineFramer(10), b"a\nb\n\nc\n") == [b"a", b"b", b"", b"c"]


def test_a_frame_may_come_in_many_chunks() -> None:
    framer = LineFramer(10)
    assert feed(framer, b"a") == []
    assert feed(framer, b"b", b"c") == []
    assert feed(framer, b"\nd") == [b"abc"]
    assert feed(framer, b"\n") == [b"d"]


def test_a_carriage_return_does_not_count_towards_the_limit() -> None:
    framer = LineFramer(3)
    assert [frame.strip() for frame in feed(framer, b"abc\r\n", b"abc\r", b"\n")] == [b"abc"] * 2
    assert framer.violation is None


@pytest.mark.parametrize("chunks", [[b"abcd\n"], [b"abc", b"d\n"], [b"ab", b"cd"], [b"abcd"]])
def test_a_frame_over_the_limit_is_a_violation(chunks: list[bytes]) -> None:
    framer = LineFramer(3)
    assert feed(framer, *chunks) == []
    assert isinstance(framer.violation, ProtocolViolation)
    assert (framer.violation.reason, framer.violation.rule, framer.violation.close_code) == (
        "frame over 3 bytes",
        "max_frame_bytes",
        1009,
    )


def test_the_frames_before_one_too_long_are_given() -> None:
    framer = LineFramer(3)
    assert feed(framer, b"a\nabc\nabcd\nb\n") == [b"a", b"abc"]
    assert framer.violation is not None


def test_many_short_frames_in_a_chunk_over_the_limit_are_fine() -> None:
    framer = LineFramer(3)
    assert feed(framer, b"ab\n" * 100) == [b"ab"] * 100
    assert framer.violation is None


def test_a_frame_that_raises_the_limit_does_so_for_those_behind_it() -> None:
    framer = LineFramer(3)
    frames = []
    for frame in framer.feed(b"abc\nabcdef\nabcdefg"):
        frames.append(frame)
        framer.allow(10)
    assert frames == [b"abc", b"abcdef"]
    assert framer.violation is None
    assert feed(framer, b"\n") == [b"abcdefg"]


@pytest.mark.parametrize(
    "frames",
    [[], [b"{}"], [b"{}", b"[]"], [b"x" * (JOIN_BYTES + 1)], [b"x" * (JOIN_BYTES + 1), b"{}"]],
)
def test_every_frame_becomes_a_line(frames: list[bytes]) -> None:
    lines = b"".join(frame + b"\n" for frame in frames)
    given = list(frames)
    assert b"".join(LineFramer(10).encode(given)) == lines
    assert given == []


@pytest.mark.parametrize("frames", [[b'{\n"a":\n1}'], [b"{}", b"[\n]"], [b"[\n" * JOIN_BYTES]])
def test_a_frame_with_line_breaks_becomes_one_line_all_the_same(frames: list[bytes]) -> None:
    lines = b"".join(LineFramer(10).encode(list(frames))).split(b"\n")
    assert lines == [frame.replace(b"\n", b" ") for frame in frames] + [b""]


def test_lines_have_no_words_for_closing_and_pinging() -> None:
    assert LineFramer(10).encode_close(1000, "") == []
    assert LineFramer(10).encode_ping() == []
