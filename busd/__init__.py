"""busd: the message bus for AI agents on a Linux host."""

__version__ = "0.1.0"
