"""HTTP applications of plugins, in the gateway."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import PlainTextResponse
from starlette.routing import Route

from busd import ConfigError, Plugin
from busd.gateway import Site
from busd.gateway.mounting import Mount, enabled_plugins, mounted
from busd.settings.config import load_settings
from tests.gateway.host.hosts import open_host, web

SITE = Site(settings=None, state=Path("/nowhere"), is_stopping=lambda: False)


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


async def greet(request: Request) -> PlainTextResponse:
    return PlainTextResponse("hello\n")


def application(path: str, said: list[str]) -> Any:
    plugin = Plugin("greet")

    @plugin.mounts
    @asynccontextmanager
    async def serve(site: Site) -> AsyncIterator[list[Route]]:
        said.append("opened")
        yield [Route(path, greet)]
        said.append("closed")

    assert plugin.has_no_daemon_part
    return Mount("greet", plugin.mounted[0])


@pytest.mark.anyio
async def test_an_application_is_served_as_long_as_the_gateway() -> None:
    said: list[str] = []
    async with (
        mounted([application("/greet", said)], SITE, []) as routes,
        open_host(extra_routes=routes) as host,
        web(host) as client,
    ):
        assert (await client.get("/greet")).text == "hello\n"
        assert said == ["opened"]
        # It stands behind the checks of the gateway.
        refused = await client.get("/greet", headers={"Host": "evil.example"})
        assert refused.status_code == 403
    assert said == ["opened", "closed"]


@pytest.mark.anyio
async def test_two_applications_cannot_have_one_path() -> None:
    said: list[str] = []
    mount = application("/ws/ai", said)
    with pytest.raises(ConfigError, match=r"the gateway and the plugin greet both serve /ws/ai"):
        async with mounted([mount], SITE, ["/ws/ai"]):
            raise AssertionError
    with pytest.raises(ConfigError, match=r"the plugin other"):
        async with mounted([mount, mount._replace(plugin="other")], SITE, []):
            raise AssertionError


def test_an_application_takes_the_site() -> None:
    with pytest.raises(TypeError, match="one parameter"):

        @Plugin("greet").mounts
        def serve() -> None: ...


def test_it_is_loaded_only_if_the_settings_enable_it(tmp_path: Path) -> None:
    config = tmp_path / "busd.toml"

    def names(text: str) -> list[str]:
        config.write_text(text)
        return enabled_plugins(load_settings(str(config)))

    assert names("") == []
    assert names("[bridges.hook]\nenabled = false") == []
    assert names("[bridges.hook]") == ["hook"]
    table = "[bridges.telegram]\n"
    url = 'webhook_url = "https://chat.example/telegram/1"\n'
    assert names(f'{table}{url}mode = "webhook"') == ["hook"]
    assert names(table) == []
