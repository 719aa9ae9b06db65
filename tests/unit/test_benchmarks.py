"""What the benchmarks make of what they measured."""

from __future__ import annotations

import pytest

from benchmarks.figures import Aim, Row, Table

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


def test_a_ratio_compares_within_a_round_and_not_medians():
    assert TABLE.ratio("rate", "reliable", "stock-late") == pytest.approx(1.4)
    assert TABLE.difference("rate", "reliable", "stock-late") == 4.0


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
