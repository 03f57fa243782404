"""Which pages may use the gateway, and under which names."""

from __future__ import annotations

import pytest

from busd.gateway.origins import Origins, base_url, is_indirect

HERE = ("host", "127.0.0.1:7893")


def headers(*fields: tuple[str, str]) -> list[tuple[bytes, bytes]]:
    return [(name.encode(), value.encode("latin-1")) for name, value in fields]


def fault(
    *fields: tuple[str, str], allowed: tuple[str, ...] = (), hosts: tuple[str, ...] = ()
) -> str:
    return Origins(allowed, hosts).fault_of(headers(*fields))


@pytest.mark.parametrize(
    "host",
    ["127.0.0.1:7893", "[::1]:7893", "localhost:7893", "LOCALHOST", "192.0.2.7", "chat.example"],
)
def test_names_of_this_host_are_known(host: str) -> None:
    assert fault(("host", host), hosts=("Chat.Example",)) == ""


@pytest.mark.parametrize("host", ["evil.example:7893", "", "[::1", "127.0.0.1.evil.example", "a b"])
def test_a_foreign_domain_that_resolves_to_this_host_is_refused(host: str) -> None:
    assert "gateway.allowed_hosts" in fault(("host", host))


def test_a_program_sends_no_origin_and_may_send_no_host() -> None:
    assert fault() == ""
    assert fault(HERE) == ""


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("127.0.0.1:7893", "http://127.0.0.1:7893"),
        ("localhost:7893", "http://localhost:7893"),
        ("[::1]:7893", "http://[::1]:7893"),
    ],
)
def test_a_page_of_the_gateway_itself_may_use_it(host: str, origin: str) -> None:
    assert fault(("host", host), ("origin", origin)) == ""


@pytest.mark.parametrize(
    "origin",
    [
        "http://evil.example",
        "http://127.0.0.1:3000",
        "http://localhost:7893",
        "null",
        "http://127.0.0.1:port",
        "http://127.0.0.1:7893.evil.example",
        "",
    ],
)
def test_a_page_of_another_site_is_refused(origin: str) -> None:
    assert "gateway.allowed_origins" in fault(HERE, ("origin", origin))


def test_a_site_of_the_settings_may_use_it() -> None:
    site = "https://chat.example"
    assert fault(HERE, ("origin", site), allowed=(site,)) == ""
    assert fault(HERE, ("origin", "http://chat.example"), allowed=(site,))


def test_two_origins_or_hosts_are_refused() -> None:
    own = ("origin", "http://127.0.0.1:7893")
    assert fault(HERE, own, own)
    assert fault(HERE, HERE)


@pytest.mark.parametrize(
    "field",
    [
        ("forwarded", "for=192.0.2.1"),
        ("via", "1.1 proxy"),
        ("x-forwarded-for", "192.0.2.1"),
        ("x-forwarded-proto", "https"),
        ("x-real-ip", "192.0.2.1"),
        ("cf-connecting-ip", "192.0.2.1"),
        ("true-client-ip", "192.0.2.1"),
        ("x-envoy-external-address", "192.0.2.1"),
        ("sec-fetch-site", "cross-site"),
        ("sec-fetch-site", "same-site"),
    ],
)
def test_who_comes_through_a_proxy_or_a_foreign_page_is_not_the_process(
    field: tuple[str, str],
) -> None:
    assert is_indirect(headers(HERE, field))


def test_what_a_browser_says_of_an_allowed_page_does_no_harm() -> None:
    page = ("origin", "http://127.0.0.1:3000")
    assert not is_indirect(headers(HERE, page, ("sec-fetch-site", "same-site")))
    assert not is_indirect(headers(HERE, ("sec-fetch-site", "none")))


def test_links_begin_as_the_client_reaches_the_gateway() -> None:
    assert base_url(headers(HERE)) == "http://127.0.0.1:7893"
    proxied = headers(("host", "chat.example"), ("x-forwarded-proto", "https"))
    assert base_url(proxied) == "https://chat.example"
    assert base_url([]) == ""
