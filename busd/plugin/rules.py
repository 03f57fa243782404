"""What the host calls of a plugin at once: its rules, and its hooks that are plain functions.

A fault of one is the plugin's alone: it is logged, and the bus goes on without an answer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Raw

from busd.bus.access import Identity
from busd.bus.mail import Mail
from busd.errors import PluginError
from busd.plugin.context import Context
from busd.plugin.mail import context_of

if TYPE_CHECKING:
    from busd.plugin.running import RunningPlugin


class PluginRules:
    """The plain functions of one running plugin."""

    def __init__(self, running: RunningPlugin) -> None:
        self._running = running
        self._plugin = running.plugin

    # Hooks

    def call_hooks(self, hook: str, *values: object) -> None:
        """Call the functions registered for a hook with these values and a context."""
        self._call_hooks(hook, Context(self._running), *values)

    def on_mail(self, mail: Mail) -> None:
        """Call the functions registered for mail that is kept, if the plugin keeps it."""
        if self._plugin.hooks["on_mail"] and self.keeps_mail(mail.address):
            self._call_hooks("on_mail", context_of(self._running, mail), mail.address)

    def on_dead_letter(self, mail: Mail, reason: str) -> None:
        """Call the functions registered for mail that was given up, if the plugin keeps it."""
        if self._plugin.hooks["on_dead_letter"] and self.keeps_mail(mail.address):
            self._call_hooks("on_dead_letter", context_of(self._running, mail), reason)

    def _call_hooks(self, hook: str, ctx: Context, *values: object) -> None:
        if not self._running.is_running:
            return
        for function in self._plugin.hooks[hook]:
            try:
                function(*values, ctx)
            except BaseException as problem:  # a plain function cannot be cancelled
                self._running.blame(hook, problem)

    # Rules

    def check(self, sender: str, type_name: str) -> str | None:
        """Return the reason why a sender may not send a type, if there is one."""
        for function in self._plugin.checks_by:
            try:
                reason = function(sender, type_name)
            except BaseException as problem:  # a plain function cannot be cancelled
                self._running.blame("checks", problem)
                return f"plugin {self._running.name} failed"
            if reason is not None:
                return str(reason)
        return None

    def speakers_of(self, sender: str, type_name: str, payload: Raw) -> list[str]:
        """Return the other addresses a message is sent as; refuse it if that fails."""
        name = self._running.name
        found: list[str] = []
        for function in self._plugin.speakers_named_by:
            try:
                found += [str(each) for each in function(sender, type_name, payload)]
            except BaseException as problem:  # a plain function cannot be cancelled
                self._running.blame("names_speakers", problem)
                raise PluginError(f"plugin {name} failed", plugin=name) from None
        return found

    def check_name(self, name: str, identity: Identity) -> str | None:
        """Return the reason why a connecting peer may not use a name, if there is one."""
        for function in self._plugin.names_checked_by:
            try:
                reason = function(name, identity)
            except BaseException as problem:  # a plain function cannot be cancelled
                self._running.blame("checks_names", problem)
                continue  # else a fault of one plugin would lock everybody out
            if reason is not None:
                return str(reason)
        return None

    def keeps_mail(self, address: str) -> bool:
        """Return whether the plugin starts whoever answers for an address."""
        for function in self._plugin.mail_kept_by:
            try:
                if function(address):
                    return True
            except BaseException as problem:  # a plain function cannot be cancelled
                self._running.blame("keeps_mail", problem)
        return False
