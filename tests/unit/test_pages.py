"""Cursors: opaque, short, and refused when they are somebody's invention."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from celery_reliable.operations.pages import BadCursor, Position


@given(ms=st.integers(0, 10**15), id_=st.text(max_size=80))
def test_a_cursor_leads_back_to_its_place(ms: int, id_: str) -> None:
    place = Position(ms, id_)

    assert Position.of(place.cursor) == place
    assert place.cursor.isascii()
    assert set(place.cursor).isdisjoint("=/+&?# ")


@given(st.text(min_size=1))
def test_anything_else_is_refused_or_a_place(text: str) -> None:
    try:
        Position.of(text)
    except BadCursor:
        return


@pytest.mark.parametrize(
    "cursor", ["x", "ключ", "MTI", "!!!!", "A" * 20_000, "--5:x", "5:%ff", "9" * 5_000 + ":x"]
)
def test_what_is_no_cursor_is_refused_in_one_sentence(cursor: str) -> None:
    with pytest.raises(BadCursor, match="is no cursor") as caught:
        Position.of(cursor)
    assert len(str(caught.value)) < 250
