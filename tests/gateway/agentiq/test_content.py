"""OpenAI-style content: texts, pictures, sounds and files."""

from __future__ import annotations

from typing import Any

import pytest

from busd.gateway import Attachment, Author, Said, Say
from tests.gateway.agentiq.asking import ask, connect, texts
from tests.gateway.stage.line import given

PNG = "iVBORw0KGgo="


def sent(*parts: Any) -> Say:
    """Return what is said if a client sends these parts."""
    line = connect()
    content = {"messages": [{"role": "user", "content": list(parts)}]}
    assert line.send({"type": "user_message", "id": "m1", "content": content}) == []
    [say] = line.asked_for(Say)
    assert isinstance(say, Say)
    return say


@pytest.mark.parametrize(
    "content",
    [
        "hi",
        ["hi"],
        [{"type": "text", "text": "hi"}],
        [{"text": "hi"}],
        [{"type": "input_text", "text": "hi"}],
        {"text": "hi"},
        {"messages": [{"content": "hi"}]},
        {"messages": [{"role": "user", "content": ["hi"]}]},
    ],
)
def test_every_way_to_write_a_text_is_read(content: Any) -> None:
    line = connect()
    assert line.send({"type": "user_message", "content": content}) == []
    assert line.asked_for(Say)[0].entry.text == "hi"


def test_several_texts_are_one() -> None:
    assert sent("one", {"type": "text", "text": "two"}).entry.text == "one\ntwo"


def test_only_the_last_words_of_the_user_count() -> None:
    line = connect()
    told = [("user", "first"), ("user", "last"), ("assistant", "an answer"), ("tool", "42")]
    messages = [{"role": role, "content": text} for role, text in told]
    assert line.send({"type": "user_message", "content": {"messages": messages}}) == []
    assert line.asked_for(Say)[0].entry.text == "last"


@pytest.mark.parametrize(
    ("part", "attachment"),
    [
        (
            {"type": "image_url", "image_url": {"url": "https://a.example/b.png"}},
            Attachment("image", url="https://a.example/b.png"),
        ),
        (
            {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{PNG}"}},
            Attachment("image", data=PNG, mime="image/png"),
        ),
        ({"type": "image_url", "image_url": {"url": PNG}}, Attachment("image", data=PNG)),
        (
            {"type": "image", "image_url": f"data:image/png;base64,{PNG}"},
            Attachment("image", data=PNG, mime="image/png"),
        ),
        (
            {"type": "input_image", "image_url": "HTTPS://a.example/b.png"},
            Attachment("image", url="HTTPS://a.example/b.png"),
        ),
        (
            {"type": "video_url", "video_url": {"url": "https://a.example/b.mp4"}},
            Attachment("video", url="https://a.example/b.mp4"),
        ),
        (
            {"type": "input_audio", "input_audio": {"data": PNG, "format": "wav"}},
            Attachment("audio", data=PNG, mime="audio/wav"),
        ),
        (
            {
                "type": "file",
                "file": {"filename": "a.pdf", "file_data": f"data:application/pdf;base64,{PNG}"},
            },
            Attachment("file", data=PNG, name="a.pdf", mime="application/pdf"),
        ),
        (
            {"type": "input_file", "file_url": "https://a.example/a.pdf"},
            Attachment("file", url="https://a.example/a.pdf"),
        ),
    ],
)
def test_a_part_is_an_attachment(part: dict[str, Any], attachment: Attachment) -> None:
    [found] = sent({"type": "text", "text": "look"}, part).entry.attachments
    kept = {name: given(found.extra) for name in ("extra",) if found.extra}
    assert (found.kind, found.url, found.data) == (attachment.kind, attachment.url, attachment.data)
    assert (found.name, found.mime) == (attachment.name, attachment.mime)
    assert kept in ({}, {"extra": {"format": "wav"}})


def test_what_a_part_says_besides_is_kept() -> None:
    image = {"url": "https://a.example/b.png", "detail": "high"}
    [found] = sent({"type": "image_url", "image_url": image}).entry.attachments
    assert given(found.extra) == {"detail": "high"}


def test_a_file_may_be_named_by_its_id() -> None:
    [found] = sent({"type": "file", "file": {"file_id": "f-1", "filename": "a"}}).entry.attachments
    assert (found.kind, found.name, given(found.extra)) == ("file", "a", {"file_id": "f-1"})


def test_a_picture_needs_no_text() -> None:
    say = sent({"type": "image_url", "image_url": {"url": PNG}})
    assert (say.entry.text, len(say.entry.attachments)) == ("", 1)


def test_attachments_of_others_are_shown_as_markdown() -> None:
    line = connect()
    links = (
        Attachment("image", url="https://a.example/b.png", name="a [map]"),
        Attachment("file", url="https://a.example/b.pdf"),
        Attachment("file", url="javascript:alert(1)", name="worm"),
        Attachment("file", url="https://a.example/(b)", name="two"),
        Attachment("audio", data=PNG, name="song", mime="audio/wav"),
    )
    entry = line.entry("look", author=Author("dora"), attachments=links)
    assert texts(line.show(Said("c1", entry, is_own=False))) == [
        "dora: look\n\n"
        "![a  map ](https://a.example/b.png)\n[file](https://a.example/b.pdf)\n"
        "worm\ntwo\nsong (audio/wav)\n\n"
    ]
    ask(line)
    assert texts(line.reply("", attachments=links[1:2])) == [
        "[file](https://a.example/b.pdf)",
        None,
    ]
