"""What the benchmarks make of what they measured."""

from __future__ import annotations

import pytest

from benchmarks.figures import Aim, Row, Table, percentile_99
from benchmarks.server import ServerCounts

# The machine was slow in the second round.
TABLE = Table(
    [
        Row(1, "stock-late", {"rate": 100.0, "left_bytes": 0.0}),
        Row(1, "reliable", {"rate": 150.0, "left_bytes": 5.0}),
        Row(2, "stock-late", {"rate": 10.0}),
        Row(2, "reliable", {"rate": 14.0}),
        Row(3, "stock-late", {"rate": 100.0}),
        Row(3, "reliable", {"rate": 102.0}),
        Row(0, "reliable", {"scripted": 20.0}),
    ]
)


def info(*, calls: int, reads: int, results: int | None) -> dict[str, object]:
    keyspace = {} if results is None else {"db1": {"keys": results, "expires": results}}
    return {
        "used_cpu_user": 1.0 + calls,
        "used_cpu_sys": 0.5,
        "total_reads_processed": reads,
        "cmdstat_lpush": {"calls": calls, "usec": 7, "usec_per_call": 0.5},
        "cmdstat_evalsha": {"calls": 2, "usec": 7, "usec_per_call": 0.5},
        "db0": {"keys": 9, "expires": 0},
        **keyspace,
    }


def test_a_median_is_that_of_the_rounds():
    assert TABLE.values("rate", "reliable") == [150.0, 14.0, 102.0]
    assert TABLE.median("rate", "reliable") == 102.0
    assert TABLE.median("rate", "singleton") is None
    assert TABLE.names() == ["rate", "left_bytes", "scripted"]


def test_a_ratio_compares_within_a_round_and_not_medians():
    assert TABLE.ratio("rate", "reliable", "stock-late") == pytest.approx(1.4)
    assert TABLE.difference("rate", "reliable", "stock-late") == 4.0


def test_there_is_no_ratio_to_nothing_nor_to_what_was_not_measured():
    assert TABLE.ratio("left_bytes", "reliable", "stock-late") is None
    assert TABLE.difference("left_bytes", "reliable", "stock-late") == 5.0
    assert TABLE.ratio("scripted", "reliable", "stock-late") is None
    assert TABLE.difference("scripted", "reliable", "stock-late") is None


@pytest.mark.parametrize(
    ("aim", "found", "is_met"),
    [
        (Aim("rate", "reliable", at_least=1.3), 1.4, True),
        (Aim("rate", "reliable", at_least=1.5), 1.4, False),
        (Aim("rate", "reliable", at_most=4.0, kind="difference"), 4.0, True),
        (Aim("scripted", "reliable", at_most=19.0, kind="value"), 20.0, False),
    ],
)
def test_an_aim_is_held_against_what_was_found(aim, found, is_met):
    assert aim.found(TABLE) == pytest.approx(found)
    assert aim.is_met(found) is is_met


def test_what_a_server_counts_is_read_from_its_info():
    counts = ServerCounts.from_info(info(calls=3, reads=40, results=5))
    assert counts == ServerCounts(results=5, cpu_seconds=4.5, trips=40, commands=5)
    assert ServerCounts.from_info(info(calls=3, reads=40, results=None)).results == 0


def test_between_two_looks_the_looks_themselves_do_not_count():
    before = ServerCounts.from_info(info(calls=3, reads=40, results=None))
    after = ServerCounts.from_info(info(calls=103, reads=140, results=20))
    # Four polls, and one of the looks.
    assert after.since(before, polls=4) == ServerCounts(20, 100.0, trips=95, commands=95)


def test_the_99th_percentile_lies_between_the_values_beside_it():
    assert percentile_99([1.0] * 50 + [2.0] * 51) == 2.0
    assert percentile_99([0.0, 100.0]) == pytest.approx(99.0)
