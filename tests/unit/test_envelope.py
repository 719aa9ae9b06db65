"""What is read of a message that anybody may have written."""

from __future__ import annotations

import pytest

from celery_reliable.envelope import HEADER, Stamp


@pytest.mark.parametrize("generation", ["1", "1795288823019", "9" * 15])
def test_a_stamp_is_read_as_it_was_written(generation: str) -> None:
    stamp = Stamp(generation, "0-abc")

    assert Stamp.of({HEADER: str(stamp)}) == stamp


@pytest.mark.parametrize(
    "value",
    ["", "1", ":0-abc", "-1:0-abc", "\u00b2:0-abc", "\u0663:0-abc", "9" * 16 + ":0-abc", 7, None],
)
def test_what_is_no_stamp_counts_as_none(value: object) -> None:
    assert Stamp.of({HEADER: value}) == Stamp()
