"""Batches: how much of one is decoded."""

from __future__ import annotations

import msgspec
import pytest

from busd.rpc.envelope import MAX_BATCH, decode_batch


def test_of_too_many_elements_only_as_many_are_made_as_show_that_it_is_too_many() -> None:
    elements = decode_batch(b"[" + b"1," * 500_000 + b"1]")
    assert len(elements) == MAX_BATCH + 1


def test_the_elements_of_a_batch_come_as_they_are_and_in_order() -> None:
    elements = decode_batch(b'[{"a": 1}, null,\t"",[] ]')
    assert [bytes(element) for element in elements] == [b'{"a": 1}', b"null", b'""', b"[]"]
    assert decode_batch(b" [ ] ") == []


def test_what_is_skipped_must_be_json_all_the_same() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_batch(b"[" + b"1," * 2_000 + b"}]")
