"""The page of the webhook bridge says what is."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from busd.gateway import GatewayTable
from busd_plugins.hook.messages import Posted
from busd_plugins.hook.openapi import _FAULTS
from busd_plugins.hook.settings import HookTable
from tests.daemons import PATIENCE_SECONDS
from tests.plugins.hook.place import SECRET, Hooks

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs/bridges/hook.md").read_text()


def test_the_sample_posts_a_signed_message(hooks: Hooks, tmp_path: Path) -> None:
    [sample] = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    (tmp_path / "secret").write_text(f"{SECRET}\n")
    words = [f"{hooks.url()}?wait=20", str(tmp_path / "secret"), "hello"]
    done = subprocess.run(
        [sys.executable, "-c", sample, *words],
        capture_output=True,
        text=True,
        check=True,
        timeout=PATIENCE_SECONDS,
    )
    assert '"state":"answered"' in done.stdout


def test_the_page_names_every_member_and_every_code() -> None:
    for name in Posted.__struct_fields__:
        assert f"`{name}`" in PAGE, name
    sources = "".join(each.read_text() for each in (ROOT / "plugins/hook").glob("*.py"))
    codes = set(re.findall(r"HookError\(\s*\d+,\s*\"(\w+)\"", sources))
    codes -= {"bad_secret", "unknown_bot"}  # for Telegram only
    assert len(codes) > 10
    assert {code for code in codes if f"`{code}`" not in PAGE} == set()
    for status in _FAULTS:
        assert f"| {status} | `" in PAGE


def test_the_numbers_of_the_page_are_the_defaults() -> None:
    table = HookTable()
    assert f"`wait_seconds` ({table.wait_seconds:g})" in PAGE
    assert f"`window_seconds` ({table.window_seconds:g})" in PAGE
    assert table.callback_seconds == 3_600
    assert f":{GatewayTable().listen.rpartition(':')[2]}/hook/" in PAGE
