"""One connection of a client: what its handshake says, and the rooms that it has joined."""

from __future__ import annotations

from typing import Any

from busd.gateway import Author, Emit, Hello
from busd_plugins.tkr.adapters import DEFAULT_SESSION

AGENTS, TASKS = "/agents", "/tasks"  # namespaces; everything else is as in "/"
MAX_SESSIONS = 64  # that one connection may be in
MAX_ROOMS = 256  # of agents and tasks
MAX_HISTORY = 500


class Connection:
    """What is known of a connection. A client in two namespaces has two."""

    def __init__(self, hello: Hello) -> None:
        query = hello.query
        self.hello = hello
        self.namespace = hello.namespace or "/"
        self.given_session = query.get("session_id") or query.get("sessionId") or ""
        self.session = self.given_session or DEFAULT_SESSION  # of messages that name none
        self.agent = (query.get("agent_id") or query.get("agentId") or "").removeprefix("agent:")
        self.is_agent = query.get("client_type") == "agent"
        self.client_id = query.get("client_id") or ""
        self.is_streamed_to = query.get("streaming") not in ("false", "0")
        self.last_id = query.get("last_message_id") or query.get("lastMessageId") or ""
        self.sessions: set[str] = set()  # entered
        self.agents: set[str] = {self.agent} if self.agent else set()  # joined
        self.tasks: set[str] = set()  # subscribed to

    @property
    def name(self) -> str:
        """The name by which the gateway knows the client again when it comes back."""
        name = ":".join(("tkr", self.namespace, self.agent[:100], self.client_id[:100]))
        return "".join(each if each.isprintable() else "?" for each in name)

    @property
    def user(self) -> Author:
        """Who is at the client."""
        return Author(self.hello.user)

    def author(self, from_agent: str | None, from_user: bool | str | None) -> Author:
        """Return who has written a message: an agent, or the user by the name given."""
        if from_agent:
            return Author(from_agent, "agent")
        name = from_user if isinstance(from_user, str) else ""
        return Author(self.user.id, name=name)

    def status(self) -> Emit:
        """Return what a client is told first."""
        said: dict[str, Any] = {"connected": True}
        if self.namespace != TASKS:
            said |= {"agent_id": self.agent, "session_id": self.given_session}
        said["socket_id"] = self.hello.socket_id
        if self.namespace != "/":
            said["namespace"] = self.namespace
        return Emit("connect:status", said)
