"""The steps of an answer: which one stands within which."""

from __future__ import annotations

import msgspec

from busd_plugins.agentiq.frames import Frame

_MAX_STEPS = 64
_MAX_CHARACTERS = 32 * 1024


class Steps:
    """Completes the frames of steps by the steps within them.

    The toolkit's web UI replaces a step by its next frame, and drops what it had put into the step.
    So that frame has to bring it along, under the name that the web UI reads.
    """

    def __init__(self) -> None:
        self._within: dict[str, list[str]] = {}  # by the id of the step around them
        self._inner: dict[str, Frame] = {}  # the last frames of those that stand within another
        self._characters = 0

    def complete(self, frame: Frame, parent: str) -> Frame:
        """Return the frame of a step, with the steps that are known to be within it."""
        step_id = frame["id"]
        if step_id not in self._within and len(self._within) < _MAX_STEPS:
            # Only a step that came before can be around it: nothing stands within itself.
            if parent in self._within:
                self._within[parent].append(step_id)
                self._inner[step_id] = {}
            self._within[step_id] = []
        if step_id in self._inner:
            self._remember(frame)
        return self._with_inner(frame)

    def _remember(self, frame: Frame) -> None:
        """Keep a frame, unless it is too large: then the one before it stays."""
        grows = _size(frame) - _size(self._inner[frame["id"]])
        if self._characters + grows <= _MAX_CHARACTERS:
            self._inner[frame["id"]] = frame
            self._characters += grows

    def _with_inner(self, frame: Frame) -> Frame:
        known = [self._inner[each] for each in self._within.get(frame["id"], ())]
        inner = [self._with_inner(each) for each in known if each]
        return {**frame, "intermediate_steps": inner} if inner else frame


def _size(frame: Frame) -> int:
    return len(msgspec.json.encode(frame)) if frame else 0
