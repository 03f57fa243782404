"""Hook: lets any program that can post HTTP talk to agents. The gateway serves it.

POST → `Pages` → `Exchange.accept` → `bridge.push` → agent → `Exchange.post` → answer or callback
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import TYPE_CHECKING

from busd import Plugin
from busd.gateway import Site

if TYPE_CHECKING:
    from starlette.routing import BaseRoute

plugin = Plugin("hook", version="1.0")


@plugin.mounts
@asynccontextmanager
async def serve(site: Site) -> AsyncIterator[list[BaseRoute]]:
    """Serve webhooks, and the updates that Telegram posts."""
    # Only the gateway has the packages for this.
    from busd_plugins.hook.pages import open_hooks
    from busd_plugins.hook.telegram import open_telegram

    hook, telegram = site.settings.bridges.hook, site.settings.bridges.telegram
    async with AsyncExitStack() as stack:
        routes: list[BaseRoute] = []
        if hook is not None and hook.enabled:
            routes += await stack.enter_async_context(open_hooks(hook, site))
        # Also if it is not enabled: then the bridge is a unit of its own.
        if telegram is not None and telegram.mode == "webhook":
            routes += await stack.enter_async_context(open_telegram(telegram))
        yield routes
