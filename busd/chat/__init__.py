"""The terminal chat: `busd chat`."""
