"""Events: their page, their signals, and what becomes of one that cannot be sent."""

from __future__ import annotations

import logging
from typing import Any

import pytest
from celery.utils.dispatch import Signal

from celery_reliable import events, signals
from celery_reliable.model import Cause, SweepReport
from tests.support.telling import PAGE, page, tellers_of


class _App:
    """An app whose events nobody wants."""

    class conf:  # noqa: N801 - as an app has it
        worker_send_task_events = False

    tasks: dict[str, Any] = {}


def test_the_page_lists_them() -> None:
    assert PAGE.read_text("utf-8") == page(), "write it: python -m tests.support.telling"


def test_each_is_reported_somewhere() -> None:
    assert all(tellers_of(one) for one in events.DECLARED.values())


def test_the_signals_are_those_that_are_declared() -> None:
    made = {name: one for name, one in vars(signals).items() if isinstance(one, Signal)}
    assert set(made) == set(signals.__all__)
    wanted = {name for name, one in events.DECLARED.items() if one.signal is not None}
    assert wanted == {one.name for one in made.values()}


def test_an_idle_pass_is_a_signal_and_nothing_else(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    heard, noted = [], []

    def hear(sender: Any, report: SweepReport, **_: Any) -> None:
        heard.append((sender, report))

    app = _App()
    monkeypatch.setattr(events.Event, "_note", lambda _, app, about: noted.append(about))
    signals.pass_finished.connect(hear)
    try:
        for report in (SweepReport(looked_at=2), SweepReport(lost=1, duration_seconds=0.01)):
            events.pass_finished(app=app, report=report)
            assert heard.pop() == (app, report)
    finally:
        signals.pass_finished.disconnect(hear)
    assert noted == [{"report": {"lost": 1, "duration_seconds": 0.01}}]
    assert caplog.messages == ["pass_finished lost=1 duration_seconds=0.01"]


def test_an_event_that_cannot_be_sent_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def refuse(kind: str, **fields: Any) -> None:
        sent.append((kind, fields))
        raise OSError("away")

    sent: list[tuple[str, dict[str, Any]]] = []
    caplog.set_level(logging.INFO, "celery_reliable")
    with events.through(refuse):
        events.task_lost(
            app=_App(), name="work", task_id="x", attempt=1, losses=2, cause=Cause.CHILD_LOST,
            worker="w",
        )  # fmt: skip
    facts = {
        "attempt": 1,
        "losses": 2,
        "cause": "child_lost",
        "is_counted": True,
        "owner": "w",
        "exception": "",
    }
    assert sent == [("task-lost", {"uuid": "x", "name": "work", **facts})]
    counted = "attempt=1 losses=2 is_counted=True cause=child_lost worker=w exception="
    assert caplog.messages == [
        f"task_lost name=work id=x {counted}",
        "event_not_sent event=task-lost id=x error=OSError('away')",
    ]
    assert caplog.records[0].funcName == "test_an_event_that_cannot_be_sent_is_logged"
