"""The soak does one fault to real workers: it happens, and costs what the table says."""

from __future__ import annotations

from pathlib import Path

import pytest

from proof.soak.live import live
from proof.soak.plan import LEASE_SECONDS, Step, World
from proof.soak.table import ONE

pytestmark = pytest.mark.full


def test_a_full_server_costs_what_is_written_down(tmp_path: Path) -> None:
    world = World("alone oom", ONE, [Step(2.0, "oom", LEASE_SECONDS, "two", "", 1)])
    lived = live(world, tmp_path / "world", rest_seconds=120.0)

    told = [str(one) for one in (*lived.happened, *lived.deaths, *lived.allowed)]
    assert (lived.problems, lived.allowed) == ([], []), told
    assert lived.counts["published"]
    (full,) = lived.happened
    assert (full.fault, abs(full.measured) > 0) == ("oom", True)
    assert any(row["kind"] == "begin" and row["at"] / 1e6 > full.until for row in lived.rows), (
        "work goes on"
    )
