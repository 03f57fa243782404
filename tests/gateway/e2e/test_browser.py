"""A real browser: pages of an allowed site chat, and those of another one are refused."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.browser.test_browser import CHROMIUM, open_browser
from tests.gateway.e2e.page import PageServer, open_page_server
from tests.gateway.e2e.place import Place, open_place

_SECONDS = 90.0  # on a busy machine; it takes about two
pytestmark = pytest.mark.skipif(not CHROMIUM, reason="there is no chromium for pages that chat")


@pytest.fixture(scope="module")
def server() -> Iterator[PageServer]:
    with open_page_server() as opened:
        yield opened


@pytest.fixture(scope="module")
def place(server: PageServer) -> Iterator[Place]:
    """A gateway that allows the pages of `localhost`, and not those of `127.0.0.1`."""
    allowed = [f"http://localhost:{server.port}"]
    with open_place(settings={"gateway.allowed_origins": allowed}) as opened:
        yield opened


def shown(server: PageServer, place: Place, dialect: str, site: str) -> list[str]:
    """Return what a page of a site shows in a browser."""
    server.set_page(dialect, place.host)
    server.is_done.clear()
    url = f"http://{site}:{server.port}"
    with open_browser(f"{url}/page"):
        assert server.is_done.wait(_SECONDS), "the page has not come to its end"
    assert server.shown["origin"] == url
    lines: list[str] = server.shown["lines"]
    return lines


def test_a_page_of_an_allowed_site_chats(server: PageServer, place: Place) -> None:
    """In the formats whose clients are pages: each word of the answer is read from the page."""
    assert shown(server, place, "agentiq", "localhost") == ["open", "Good ", "day"]
    opened, said, thinking, *_, answer = shown(server, place, "group", "localhost")
    assert (opened, said, thinking) == ("open", "tell 你|好", "[正在思考...]")
    assert answer == "你好"


@pytest.mark.parametrize("dialect", ["agentiq", "group"])
def test_a_page_of_another_site_is_refused(server: PageServer, place: Place, dialect: str) -> None:
    assert shown(server, place, dialect, "127.0.0.1") == ["closed 1006"]
