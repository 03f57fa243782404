"""Messages of users while the bridge, the bus and workers are killed: each is answered, and once.

`python -m tests.plugins.telegram.kills` does it at full length; `make test` does a short one.
"""

from __future__ import annotations

import argparse
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from busd import BusdError, SyncClient
from tests.daemons import Daemon, open_daemon
from tests.plugins.telegram.server import Telegram

Json = dict[str, Any]  # as the bus answers it
REPEAT_MARK = "↻ "  # as users see it
KINDS = ("bridge", "bus", "worker")


def settings_of(server: Telegram, folder: Path) -> Json:
    """Return the settings of a bus with the bridge, and a worker that says what it hears."""
    token = folder / "token"
    token.write_text(server.token)
    token.chmod(0o600)
    return {
        "bridges.telegram.token_file": str(token),
        "bridges.telegram.api_base": server.url,
        "bridges.telegram.restarts": 1_000,
        "workers.default.command": ["cat"],
        "workers.default.spawner": "subprocess",
        "workers.default.restart_seconds": 0.05,
        "agents.stop_seconds": 1.0,
    }


class Chaos:
    """Kills processes while users write and get answers."""

    def __init__(
        self, server: Telegram, daemon: Daemon, settings: Json, chats: int, messages: int
    ) -> None:
        self._server = server
        self._daemon = daemon
        self._settings = settings
        self._chats = list(range(1, chats + 1))
        self._messages = messages
        self._asked = 0
        self.killed: Counter[str] = Counter()

    def run(self, kills: int, patience_seconds: float) -> None:
        """Write all messages, kill in between, and wait for the answers."""
        for number in range(kills):
            self._write((number + 1) * self._messages // (kills + 1))
            goal = number * self._messages // (kills + 1)
            self._until(partial(self._has_answered, goal), patience_seconds)
            kind, chat = KINDS[number % len(KINDS)], self._chats[number % len(self._chats)]
            self._until(partial(self._kill, kind, chat), patience_seconds)
        self._write(self._messages)
        self._until(partial(self._has_answered, self._messages), patience_seconds)

    def _write(self, until: int) -> None:
        while self._asked < until:
            chat = self._chats[self._asked % len(self._chats)]
            self._server.says(f"message {self._asked}", chat, chat)
            self._asked += 1

    def _answered(self) -> int:
        return len({each.text.removeprefix(REPEAT_MARK) for each in self._server.messages})

    def _has_answered(self, count: int) -> bool:
        return self._answered() >= count

    def _until(self, condition: Callable[[], bool], seconds: float) -> None:
        deadline = time.monotonic() + seconds
        while not condition():
            assert time.monotonic() < deadline, f"{self._report()}\n{self._daemon.log()}"
            time.sleep(0.05)  # nobody reports what was posted

    def _report(self) -> str:
        return f"{self._asked} asked, {self._answered()} answered, killed {dict(self.killed)}"

    def _kill(self, kind: str, chat: int) -> bool:
        """Kill a process; return False if there is none of that kind now."""
        if kind == "bus":
            self._daemon.process.kill()
            self._daemon.wait()
            self._daemon.start_again("uvloop", self._settings)
        else:
            pid = self._pid(kind, chat)
            if not pid:
                return False
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                return False  # the bus is just restarting it
        self.killed[kind] += 1
        return True

    def _pid(self, kind: str, chat: int) -> int:
        try:
            with SyncClient("test:kills", address=f"unix:{self._daemon.path}") as bus:
                if kind == "bridge":
                    [found] = bus.call("bridges.list")["bridges"]
                else:
                    agents = bus.call("agents.list")["agents"]
                    named = [each for each in agents if str(chat) == str(each.get("chatId"))]
                    found = (named or agents or [{}])[0]
        except BusdError:
            return 0
        return int(found.get("pid") or 0)

    def check(self) -> Counter[str]:
        """Make sure that each message has one answer, others are marked; return the marked ones."""
        posted = Counter((each.chat, each.text) for each in self._server.messages)
        for number in range(self._messages):
            chat = self._chats[number % len(self._chats)]
            text = f"message {number}"
            answers = posted[chat, text] + posted[chat, REPEAT_MARK + text]
            assert answers, f"{text} has no answer"
            assert posted[chat, text] <= 1, f"{text} was answered twice without a mark"
        for chat in self._chats:
            found = [each.text for each in self._server.messages if each.chat == chat]
            firsts = list(dict.fromkeys(each.removeprefix(REPEAT_MARK) for each in found))
            asked = range(chat - 1, self._messages, len(self._chats))
            assert firsts == [f"message {number}" for number in asked], f"the order of {chat}"
        return Counter({each[1]: n for each, n in posted.items() if each[1].startswith("↻")})


def rehearse(
    folder: Path, *, chats: int, messages: int, kills: int, patience_seconds: float
) -> tuple[Counter[str], Counter[str]]:
    """Do all of it; return what was killed how often, and which answers were marked."""
    with Telegram().start() as server:
        settings = settings_of(server, folder)
        with open_daemon("uvloop", settings, folder=folder / "bus") as daemon:
            daemon.is_blamed = True  # it logs that processes were killed
            chaos = Chaos(server, daemon, settings, chats, messages)
            chaos.run(kills, patience_seconds)
            return chaos.killed, chaos.check()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=1_000)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--chats", type=int, default=10)
    args = parser.parse_args()
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="busd-telegram-") as folder:
        (Path(folder) / "bus").mkdir()
        killed, marked = rehearse(
            Path(folder),
            chats=args.chats,
            messages=args.messages,
            kills=args.kills,
            patience_seconds=600,
        )
    print(
        f"{args.messages} messages, killed {dict(killed)}: each answered, in order,"
        f" {sum(marked.values())} marked as repeated, in {time.monotonic() - begun:.0f} s"
    )


if __name__ == "__main__":
    main()
