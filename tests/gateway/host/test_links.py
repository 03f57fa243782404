"""Links to files: signed, and valid for a while."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busd.errors import ConfigError
from busd.gateway.links import BadTicket, Expired, Links, load_key
from tests.gateway.host.hosts import RunningHost, web
from tests.gateway.host.test_limits import Clock

KEY = b"k" * 32
FILE = "https://files.example/report.pdf?v=2#p3"


def ticket_of(link: str) -> str:
    return link.removeprefix("/files/")


def test_a_link_leads_to_its_file() -> None:
    links = Links(KEY, 60, Clock())
    assert links.open(ticket_of(links.sign(FILE))) == FILE


@pytest.mark.parametrize(
    "url",
    [
        "javascript:alert(1)",
        "data:text/html,<script>",
        "file:///etc/passwd",
        "ftp://files.example/a",
        "//files.example/a",
        "/a",
        "",
        "http://",
        "http:///a",
        "http://[::1",
        "http://files.example:port/",
        "http://files.example:0/",
        "http:\\\\files.example",
        "http://files.example/\ud800",
        "http://files.example/" + "a" * 5_000,
    ],
)
def test_only_http_urls_get_a_link(url: str) -> None:
    assert Links(KEY, 60).sign(url) == ""


@pytest.mark.parametrize(
    ("url", "plain"),
    [
        ("https://files.example/报告 1.pdf", "https://files.example/%E6%8A%A5%E5%91%8A%201.pdf"),
        ("https://files.example/a%20b", "https://files.example/a%20b"),
        ("http://x/\r\nSet-Cookie: a=b", "http://x/%0D%0ASet-Cookie:%20a=b"),
        ("  http://x/a\n", "http://x/a"),
        ("HTTP://X:8080/A", "HTTP://X:8080/A"),
    ],
)
def test_a_url_can_end_no_header(url: str, plain: str) -> None:
    links = Links(KEY, 60)
    assert links.open(ticket_of(links.sign(url))) == plain


@given(st.text())
def test_any_url_is_plain_text_or_refused(path: str) -> None:
    links = Links(KEY, 60)
    if link := links.sign(f"http://x/{path}"):
        opened = links.open(ticket_of(link))
        assert opened.isascii()
        assert opened.isprintable()
        assert " " not in opened


def test_a_link_expires() -> None:
    clock = Clock()
    links = Links(KEY, 60, clock)
    ticket = ticket_of(links.sign(FILE))
    clock.now = 60
    assert links.open(ticket) == FILE
    clock.now = 61
    with pytest.raises(Expired):
        links.open(ticket)


def test_another_keys_link_is_refused() -> None:
    with pytest.raises(BadTicket):
        Links(b"o" * 32, 60).open(ticket_of(Links(KEY, 60).sign(FILE)))


@given(st.data())
def test_a_changed_link_is_refused(data: st.DataObject) -> None:
    links = Links(KEY, 60)
    ticket = ticket_of(links.sign(FILE))
    at = data.draw(st.integers(0, len(ticket) - 1))
    other = data.draw(st.sampled_from("AZaz09-_"))
    changed = ticket[:at] + other + ticket[at + 1 :]
    if changed != ticket:
        with pytest.raises(BadTicket):
            links.open(changed)


@given(st.text())
def test_anything_else_is_refused(ticket: str) -> None:
    with pytest.raises((BadTicket, Expired)):
        Links(KEY, 60).open(ticket)


# The key


def test_the_key_is_made_once_and_is_private(tmp_path: Path) -> None:
    key = load_key(tmp_path)
    assert len(key) == 32
    assert load_key(tmp_path) == key
    assert (tmp_path / "link_key").stat().st_mode & 0o777 == 0o600


def test_a_key_that_others_may_know_is_refused(tmp_path: Path) -> None:
    load_key(tmp_path)
    (tmp_path / "link_key").chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 0600"):
        load_key(tmp_path)


@pytest.mark.parametrize("content", [b"", b"short", b"x" * 33])
def test_a_key_of_the_wrong_size_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "link_key").write_bytes(content)
    (tmp_path / "link_key").chmod(0o600)
    with pytest.raises(ConfigError, match="link_key"):
        load_key(tmp_path)


def test_a_link_in_the_place_of_the_key_is_not_followed(tmp_path: Path) -> None:
    (tmp_path / "other").write_bytes(KEY)
    (tmp_path / "link_key").symlink_to(tmp_path / "other")
    with pytest.raises(ConfigError, match="symbolic link"):
        load_key(tmp_path)


# Over HTTP


@pytest.mark.anyio
async def test_the_gateway_redirects_to_the_file(host: RunningHost) -> None:
    link = host.clients.links.sign(FILE)
    async with web(host) as client:
        for method in ("GET", "HEAD"):
            answer = await client.request(method, link)
            assert answer.status_code == 307
            assert answer.headers["location"] == FILE
            assert answer.headers["cache-control"] == "no-store"
            assert answer.headers["referrer-policy"] == "no-referrer"
        assert (await client.post(link)).status_code == 405
        # From a page of another site, too: the chat that shows the link is one.
        answer = await client.get(link, headers={"Sec-Fetch-Site": "cross-site"})
        assert answer.status_code == 307


@pytest.mark.anyio
async def test_a_bad_link_and_an_expired_one_are_told_apart(host: RunningHost) -> None:
    expired = Links(KEY, -10).sign(FILE)
    async with web(host) as client:
        answer = await client.get(expired)
        assert answer.status_code == 410
        assert "location" not in answer.headers
        answer = await client.get(host.clients.links.sign(FILE)[:-1] + "x")
        assert answer.status_code == 403
        assert (await client.get("/files/")).status_code == 404
