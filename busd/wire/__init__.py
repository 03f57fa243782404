"""Bytes, frames and sockets; nothing in here knows JSON."""
