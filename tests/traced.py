"""Run busd and record which functions are called: `python -m tests.traced STEPS OUT ARGUMENT…`.

STEPS is a JSON list of `[file, function]`; each call or resumption of one of them is a line in OUT.
"""

from __future__ import annotations

import json
import os
import sys
import threading
from pathlib import Path
from types import FrameType

from busd.cli.main import main as run_busd

_ROOT = f"{Path(__file__).parent.parent}/"


def main() -> None:
    steps = {(file, name): f"{file} {name}\n".encode() for file, name in read_steps(sys.argv[1])}
    out = os.open(sys.argv[2], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def record(frame: FrameType, event: str, _: object) -> None:
        if event != "call":
            return
        step = (frame.f_code.co_filename.removeprefix(_ROOT), frame.f_code.co_qualname)
        if step in steps:
            os.write(out, steps[step])

    sys.argv = ["busd", *sys.argv[3:]]
    threading.setprofile(record)
    sys.setprofile(record)
    run_busd()


def read_steps(path: str) -> list[list[str]]:
    steps: list[list[str]] = json.loads(Path(path).read_text())
    return steps


if __name__ == "__main__":
    main()
