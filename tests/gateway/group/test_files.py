"""HTML is made harmless, and files are handed out as links that expire."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from busd.gateway import Attachment, Author, Entry, Said, Say
from busd_plugins.group.html import MAX_CHARACTERS, clean_html
from busd_plugins.group.links import with_links
from tests.gateway.group.hall import Hall, Json, sign
from tests.gateway.group.said import error_of, message

URL = "https://files.example/a.png"
LINK = "http://127.0.0.1:7893/files/a.png?signed"
FILE = {"id": "f", "name": "a.png", "type": "image", "size": 3, "url": URL}


def shown(kind: str, **payload: Any) -> Json:
    """Return the payload that the others see."""
    hall = Hall()
    client, other = hall.open(), hall.open()
    client.send(message(kind, **payload))
    found: Json = other.frames[1]["payload"]
    return found


@pytest.mark.parametrize(
    "html",
    [
        "<script>偷()</script>",
        "<SCRIPT SRC=//evil.example/x.js></SCRIPT>",
        "<scr<script></script>ipt>偷()</script>",
        "<script\n>偷()</script >",
        "<script>偷()",
        "<img src=x onerror=偷()>",
        "<img src='x' onerror='偷()'>",
        "<svg onload=偷()><g onclick=偷()></svg>",
        "<math><mtext></mtext><script>偷()</script></math>",
        "<a href='javascript:偷()'>x</a>",
        "<a href=' jav&#x61;script:偷()'>x</a>",
        "<a href='data:text/html,偷()'>x</a>",
        "<iframe srcdoc='偷()'></iframe>",
        "<style>*{background:url(偷)}</style>",
        "<p style='background:url(偷)'>x</p>",
        "<!-- <p a='--><script>偷()</script> -->",
        "<form action=偷><input name=偷></form>",
        "<object data=偷></object><embed src=偷>",
        "<meta http-equiv=refresh content='0;url=偷'>",
        "<link rel=stylesheet href=偷>",
        "<base href=偷>",
        "<noscript><p title='</noscript><script>偷()</script>'></noscript>",
        "<textarea><script>偷()</script></textarea>",
        "<template><script>偷()</script></template>",
        "<details open ontoggle=偷()>",
        "<img src='//evil.example/偷'>",
        "<a href='/偷'>x</a>",
    ],
)
def test_html_with_scripts(html: str) -> None:
    payload = shown("rich_text", text="看", html_content=f"<b>前</b>{html}<i>后</i>")
    # What stays of it is text, if anything.
    assert re.search(r"<[^>]*偷", payload["html_content"]) is None
    assert "<script" not in payload["html_content"].lower()
    assert "<b>前</b>" in payload["html_content"]


def test_html_of_the_document_is_not_changed() -> None:
    html = "<div><h1>报告</h1><p>我们发现……</p><ul><li>一</li><li>二</li></ul></div>"
    assert clean_html(html) == html
    table = "<table><tbody><tr><td colspan='2'>a &lt; b</td></tr></tbody></table>".replace("'", '"')
    assert clean_html(table) == table


def test_text_that_is_html_is_made_harmless_too() -> None:
    assert shown("chat", text="<b onclick=x>你好</b>", format="html")["text"] == "<b>你好</b>"
    assert shown("chat", text="<b onclick=x>1 < 2")["text"] == "<b onclick=x>1 < 2"


def test_html_is_kept_harmless() -> None:
    hall = Hall()
    hall.open().send(message("rich_text", html_content="<p onclick=偷()>x</p>"))
    assert "偷" not in bytes(hall.entries[0].original).decode()  # type: ignore[arg-type]


def test_too_much_html() -> None:
    client = Hall().open()
    frame = message("rich_text", html_content="x" * (MAX_CHARACTERS + 1))
    assert error_of(client.send(frame))[1] == f"payload.html_content: 超过{MAX_CHARACTERS}个字符"


@pytest.mark.parametrize(
    "unit",
    [
        *("<div>", "<script", "<!--", "<p a='", "<", "<li>x", "<b><p>", "</p >", "<a href=x "),
        *("<div><table><tr><td></div>", "<p a" + " b" * 40 + ">"),
    ],
)
def test_hostile_html_takes_no_time(unit: str) -> None:
    html = unit * (MAX_CHARACTERS // len(unit))
    started = time.process_time()
    clean_html(html)
    assert time.process_time() - started < 2  # without the first look: minutes


def test_one_element_with_many_attributes_takes_no_time() -> None:
    attributes = " ".join(f"a{number}" for number in range(40_000))
    started = time.process_time()
    clean_html(f"<p {attributes}>x")
    assert time.process_time() - started < 2


html_texts = st.text(
    st.sampled_from("<>/='\" -!abpdivscriptsrchref:&;#x0")
    | st.characters(exclude_categories=["Cs"])
)


@given(html_texts)
def test_html_stays_as_it_is_when_it_is_cleaned_again(html: str) -> None:
    once = clean_html(html)
    assert clean_html(once) == once


# Links


def test_every_address_of_a_file_is_a_link() -> None:
    payload = shown(
        "image",
        text="看",
        url=URL,
        file_url=URL,
        image_urls=[URL, URL],
        attachments=[FILE],
        深={"处": [{"thumbnail_url": URL}]},
        html_content=f"<img src='{URL}'><a href='https://x.example/'>y</a>",
    )
    assert payload["url"] == payload["file_url"] == LINK
    assert payload["image_urls"] == [LINK, LINK]
    assert payload["attachments"][0]["url"] == LINK
    assert payload["深"]["处"][0]["thumbnail_url"] == LINK
    assert f'src="{LINK}"' in payload["html_content"]
    assert URL not in str(payload)


def test_addresses_beside_the_payload_are_links_too() -> None:
    frame = message(text="看", sender={"id": "u", "avatar_url": URL})
    shown = Hall().open().send({**frame, "url": URL, "metadata": {"icon_url": URL}})[0]
    assert shown["url"] == shown["sender"]["avatar_url"] == shown["metadata"]["icon_url"] == LINK


def test_links_are_made_when_they_are_shown_and_agents_get_the_address() -> None:
    hall = Hall()
    client = hall.open()
    client.send(message("voice", url=URL, name="潮声.ogg", size=7, mime_type="audio/ogg"))
    (say,) = client.effects
    assert isinstance(say, Say)
    assert say.entry.attachments == (
        Attachment(kind="audio", url=URL, name="潮声.ogg", mime="audio/ogg", size=7),
    )
    assert say.entry.text == "[语音] 潮声.ogg"
    assert URL in bytes(hall.entries[0].original).decode()  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "url",
    ["file:///etc/passwd", "javascript:x", "data:text/html,x", "x.png", "ftp://x/y", "/files/x"],
)
def test_an_address_that_is_no_web_address_is_not_handed_out(url: str) -> None:
    assert shown("file", url=url, name="x")["url"] == ""


@pytest.mark.parametrize("url", ["", "data:image/png;base64,AAAA"])
def test_what_is_no_address_or_a_picture_stays(url: str) -> None:
    assert shown("file", url=url, name="x")["url"] == url


def test_files_of_other_dialects_are_links_too() -> None:
    client = Hall().open()
    files = (
        Attachment(kind="image", url=URL, name="a.png", mime="image/png", size=3),
        Attachment(kind="audio", data="AAAA", name="b"),
    )
    entry = Entry(text="看", id="x", author=Author("ann"), attachments=files, dialect="agentiq")
    client.show(Said("group123", entry, False))
    assert client.frames[-1]["payload"]["attachments"] == [
        {"name": "a.png", "type": "image", "url": LINK, "mime_type": "image/png", "size": 3},
        {"name": "b", "type": "audio", "data": "AAAA"},
    ]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda values: st.lists(values) | st.dictionaries(st.text(), values),
)


@given(json_values)
def test_nothing_else_is_changed_by_links(value: Any) -> None:
    def without_urls(part: Any) -> Any:
        if isinstance(part, dict):
            return {
                name: without_urls(member)
                for name, member in part.items()
                if name.lower().rsplit("_", 1)[-1] not in ("url", "urls")
            }
        return [without_urls(item) for item in part] if isinstance(part, list) else part

    plain = without_urls(value)
    assert with_links(plain, sign) == plain
