"""Events: their page, their signals, and what becomes of one that cannot be sent."""

from __future__ import annotations

from celery.utils.dispatch import Signal

from celery_reliable import events, signals
from tests.support.telling import PAGE, page, tellers_of


def test_the_page_lists_them() -> None:
    assert PAGE.read_text("utf-8") == page(), "write it: python -m tests.support.telling"


def test_each_is_reported_somewhere() -> None:
    assert all(tellers_of(one) for one in events.DECLARED.values())


def test_the_signals_are_those_that_are_declared() -> None:
    made = {name: one for name, one in vars(signals).items() if isinstance(one, Signal)}
    assert set(made) == set(signals.__all__)
    wanted = {name for name, one in events.DECLARED.items() if one.signal is not None}
    assert wanted == {one.name for one in made.values()}
