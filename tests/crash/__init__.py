"""Crash tests: real daemons, senders and workers that are killed while messages are sent."""
