"""Bub: an agent for every chat, started when it is first needed, watched, and found by its chat."""

from __future__ import annotations

from busd_plugins.bub import agent_methods
from busd_plugins.bub.system_agent import plugin

__all__ = ["agent_methods", "plugin"]
