"""The tests of the wire: bytes, frames, addresses."""
