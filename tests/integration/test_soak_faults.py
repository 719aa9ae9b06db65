"""Each fault of the world alone, on real workers: it happens, and costs what the table says."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from proof.soak.live import Lived, live
from proof.soak.plan import CLOCKS, LEASE_SECONDS, Step, World
from proof.soak.suffix import LONGEST_SECONDS
from proof.soak.table import FAULTS, LOSES_DATA, ONE
from tests.support.faketime import faketime_library

pytestmark = pytest.mark.full

#: Longer than a lease, and than the witness waits.
LONG_SECONDS = 2 * LEASE_SECONDS
REST_SECONDS = 120.0
#: What a step of the number 1 makes of latency: 0.1 s in each direction at least.
LATENCY_SECONDS = 0.1
HOUR_SECONDS = 3600
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


def published_within(lived: Lived, number: int) -> int:
    """How many calls returned while the fault went on."""
    one = lived.happened[number]
    return sum(
        row["kind"] == "published" and one.began + 0.5 < row["at"] / 1e6 < one.until - 0.1
        for row in lived.rows
    )


def nobody_published(lived: Lived) -> bool:
    return not any(published_within(lived, number) for number in range(len(lived.happened)))


def stood_still(lived: Lived) -> bool:
    """Nobody published, and who asked the server had to wait until it was over."""
    least = 0.9 * LONG_SECONDS / 2
    return nobody_published(lived) and measured(least)(lived)


def refused_writes(lived: Lived) -> bool:
    """Nobody published, and the server has counted what it refused for that reason."""
    return nobody_published(lived) and measured(1)(lived)


def was_off(lived: Lived) -> bool:
    """A worker stored results that were done an hour later, and an hour earlier."""
    forward, back = (one.measured for one in lived.happened)
    return abs(forward - HOUR_SECONDS) < 60 and abs(back + HOUR_SECONDS) < 60 and went_on(lived)


def was_declared_dead(lived: Lived) -> bool:
    # Where replies alone are lost, its renewals arrive.
    return WORKER in {one.worker for one in lived.deaths}


def begun_on(lived: Lived, since: float, until: float) -> set[int]:
    """The processes of the worker in which tasks began in that time."""
    rows = [row for row in lived.rows if row["kind"] == "begin"]
    return {
        row["pid"]
        for row in rows
        if row["worker"].startswith(f"{WORKER}@") and since < row["at"] / 1e6 < until
    }


def has_no_process_of_before(lived: Lived) -> bool:
    """Work went on, and in no process in which it began before."""
    (one,) = lived.happened
    before, after = begun_on(lived, 0, one.began), begun_on(lived, one.until, float("inf"))
    return bool(before) and not before & after and went_on(lived)


def lost_a_suffix(lived: Lived) -> bool:
    (one,) = lived.happened
    assert one.lost is not None
    # As long as was wanted, and no longer than may be; and there was something in it.
    lasted = one.lost[1] - one.lost[0]
    return STEPS[one.fault][0].seconds <= lasted <= LONGEST_SECONDS and measured(1)(lived)


def went_on(lived: Lived) -> bool:
    return any(row["kind"] == "begin" and row["at"] / 1e6 > lived.happened[-1].until
               for row in lived.rows)  # fmt: skip


def measured(least: float, most: float = float("inf")) -> Callable[[Lived], bool]:
    """Work went on, and so much was seen of each."""

    def shows(lived: Lived) -> bool:
        return went_on(lived) and all(least <= abs(one.measured) <= most for one in lived.happened)

    return shows


#: What shows that it happened.
SHOWS: dict[str, Callable[[Lived], Any]] = {
    "latency": measured(LATENCY_SECONDS, LONG_SECONDS),
    "script-flush": measured(1),
    "redis-clock": measured(HOUR_SECONDS - 60, HOUR_SECONDS + 60),
    "child-kill": measured(1, 1),
    "worker-clock": was_off,
    "pause": stood_still,
    "oom": refused_writes,
    "read-only": refused_writes,
    "aof": lost_a_suffix,
    "failover": lost_a_suffix,
    "partition": was_declared_dead,
    "freeze": was_declared_dead,
    "worker-kill": has_no_process_of_before,
    "warm-stop": has_no_process_of_before,
    "cold-stop": has_no_process_of_before,
}


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
    assert went_on(lived) or not lived.refused
    assert SHOWS[name](lived), told
    # What only a server that loses data costs, nothing else has cost.
    assert name in LOSES_DATA or not lived.allowed
    assert os.listdir(tmp_path) == ["world"]
