"""What holds for any text and any order of events."""

from __future__ import annotations

from hypothesis import given as for_all
from hypothesis import settings
from hypothesis import strategies as st

from busd.gateway import Say
from busd_plugins.stage.dialect import StageChat
from tests.gateway.stage.line import Frame, Line

_TEXTS = st.text(st.characters(codec="utf-8"), max_size=40)
_EVENTS = st.lists(
    st.sampled_from(["delta", "begin", "complete", "fail", "note", "ask", "say"]), max_size=15
)


@settings(max_examples=200, deadline=None)
@for_all(_TEXTS)
def test_every_text_is_said_or_answered(text: str) -> None:
    line = Line(StageChat)
    line.open()
    frames = line.send(text)
    assert (len(line.asked_for(Say)) == 1) != bool(frames)
    if not text.lstrip().startswith("{"):
        assert [say.entry.text for say in line.asked_for(Say)] == ([] if frames else [text])


@settings(max_examples=200, deadline=None)
@for_all(_EVENTS, st.sampled_from(["reply", "fail", "cancel"]))
def test_a_turn_has_the_stages_that_clients_count_on(events: list[str], end: str) -> None:
    line = Line(StageChat)
    line.open()
    line.send("hello")
    before = len(line.frames)
    tools: set[str] = set()
    for number, event in enumerate(events):
        if event == "delta":
            line.delta("x")
        elif event == "begin":
            tools.add(f"{number}")
            line.step(id=f"{number}", name="bake", tool="oven", status="in_progress")
        elif event in ("complete", "fail"):
            step_id = min(tools, default="0")
            tools.add(step_id)
            status = "failed" if event == "fail" else "complete"
            line.step(id=step_id, name="bake", tool="oven", status=status)
        elif event == "note":
            line.step(id=f"n{number}", name="think", status="complete")
        elif event == "ask" and not line.prompts:
            line.ask(id=f"p{number}", input_type="text", text="Why?")
        elif event == "say" and line.prompts:
            line.send("because")
    ends = {"reply": lambda: line.reply("xx"), "cancel": line.cancel}
    ends.get(end, lambda: line.fail("broken", "it broke"))()
    frames = [frame for frame in line.frames[before:] if frame.get("type") != "prompt"]
    check_order(frames, len(tools), end)


def check_order(frames: list[Frame], tools: int, end: str) -> None:
    stages = [frame.get("stage", frame.get("type")) for frame in frames]
    wanted = ["initial_response", *["tool"] * tools]
    if end == "reply":
        wanted += ["final_response"] * bool(tools)
        assert frames[-1]["content"] == "xx"
    else:
        wanted += ["cancelled" if end == "cancel" else "exception"]
    assert ["tool" if str(stage).startswith("tool_") else stage for stage in stages] == wanted
    sequences = [frame["sequence"] for frame in frames]
    assert sequences == sorted(set(sequences))
