"""The plan of the benchmark: rows, clients, colours and targets that name each other."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from bench.load import MODULES
from bench.others import NO_REDIS
from bench.plan import choose_rows, make_plan
from bench.plot import COLOURS
from bench.targets import TARGETS
from tests.cli.terminal import ROOT


def test_each_row_has_a_name_of_its_own_a_client_and_a_colour() -> None:
    rows = make_plan()
    assert len({row.name for row in rows}) == len(rows)
    assert {row.client for row in rows} <= set(MODULES)
    assert {row.server for row in rows} <= set(COLOURS)


def test_each_target_is_about_rows_of_the_plan() -> None:
    names = {row.name for row in make_plan()}
    for target in TARGETS:
        assert f"{target.workload} {target.contender}" in names
        assert not target.ratio_to or f"{target.workload} {target.ratio_to}" in names


def test_durable_sends_are_compared_with_others_that_sync_before_the_ack() -> None:
    servers = {row.server for row in choose_rows(make_plan(), ["durable-kept"], quick=False)}
    assert {"busd uvloop", "jetstream+always", "redis+always"} <= servers


def test_redis_is_left_out_with_a_reason_where_it_is_not_installed(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "bench", "--only", "redis", "--out", str(tmp_path)],
        cwd=ROOT,
        env={"PATH": ""},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert NO_REDIS in done.stderr
    assert f"Left out of this run: all rows of Redis: {NO_REDIS}." in done.stdout
