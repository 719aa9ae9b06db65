"""Each fault of the world alone, on real workers: it happens, and costs what the table says."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from proof.soak.live import live
from proof.soak.plan import CLOCKS, LEASE_SECONDS, Step, World
from proof.soak.table import FAULTS, LOSES_DATA, ONE
from tests.support.faketime import faketime_library

pytestmark = pytest.mark.full

#: Longer than a lease, and than the witness waits.
LONG_SECONDS = 2 * LEASE_SECONDS
REST_SECONDS = 120.0
WORKER = "two"


def step(name: str, way: str = "", worker: str = WORKER) -> Step:
    seconds = {"aof": 1.0, "failover": 1.0, "worker-kill": 0.0}.get(name, LONG_SECONDS / 2)
    if name in ("partition", "freeze"):
        seconds = LONG_SECONDS + 1
    return Step(2.0, name, seconds, worker, way, 1)


#: Each fault, in all its ways.
STEPS = {
    **{name: [step(name)] for name in FAULTS},
    "pause": [step("pause", "SIGSTOP"), step("pause", "CLIENT PAUSE")],
    "partition": [step("partition", "requests"), step("partition", "replies", "one")],
    "redis-clock": [step("redis-clock", "forward"), step("redis-clock", "back")],
    "worker-clock": [step("worker-clock", "forward"), step("worker-clock", "back")],
}
#: Of these nothing is measured: a worker is declared dead, or ended by its id.
UNMEASURED = ("partition", "freeze", "worker-kill", "warm-stop", "cold-stop")
#: Half a minute each, so that all are tried before a release (`--full`).
IN_EVERY_RUN = ("oom",)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_costs_what_is_written_down(
    name: str, tmp_path: Path, pytestconfig: pytest.Config
) -> None:
    if name not in IN_EVERY_RUN and not pytestconfig.getoption("full"):
        pytest.skip("half a minute; with --full, before a release")
    if name in CLOCKS and faketime_library() is None:
        pytest.skip("needs libfaketime (Debian: libfaketime)")
    fault = FAULTS[name]
    set_up = ONE if ONE in fault.set_ups else fault.set_ups[0]
    # What is published is the same each time.
    world = World(f"alone {name}", set_up, STEPS[name])
    lived = live(world, tmp_path / "world", REST_SECONDS)

    told = [str(one) for one in (*lived.happened, *lived.deaths, *lived.allowed)]
    assert lived.problems == [], told
    assert lived.counts["published"]
    assert [one.fault for one in lived.happened] == [name] * len(STEPS[name])
    last = lived.happened[-1]
    assert lived.refused or any(
        row["kind"] == "begin" and row["at"] / 1e6 > last.until for row in lived.rows
    ), "work goes on"
    if name in ("partition", "freeze"):
        assert WORKER in {one.worker for one in lived.deaths}, told
    elif name not in UNMEASURED:
        assert all(abs(one.measured) > 0 for one in lived.happened), told
    # What only a server that loses data costs, nothing else has cost.
    assert name in LOSES_DATA or not lived.allowed
    assert os.listdir(tmp_path) == ["world"]
