"""What the package tells of: each event is declared once, told of by somebody, and one line."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest
from celery.utils.dispatch import Signal

from celery_reliable import events, signals
from celery_reliable.events.declaring import DEBUG, ERROR, declared
from celery_reliable.exceptions import LedgerUnavailable
from celery_reliable.model import Cause, Reason, SweepReport
from tests.support.telling import PAGE, Teller, loggings, page, tellers

PAST_EVENTS = """\
import logging
from celery_reliable import events, signals

logger = logging.getLogger(__name__)

def one():
    logger.warning("something")

class It:
    def two(self):
        logging.getLogger("celery_reliable").info("something")
        events.logger.error("something")
        signals.task_lost.send(sender="x")

        def three():
            events.clock_stepped_back()
            events.through(None)
"""


class _App:
    """An app whose events nobody wants."""

    class conf:  # noqa: N801 - as an app has it
        worker_send_task_events = False

    tasks: dict[str, Any] = {}


class _Awkward(Exception):
    def __repr__(self) -> str:
        raise RuntimeError("no")

    __str__ = __repr__


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(DEBUG, "celery_reliable")
    return caplog


def test_every_event_is_told_of_by_somebody_and_nothing_else_is() -> None:
    told = {one.event for one in tellers()}
    # Where all are sent, two are told of by their names.
    assert told == events.DECLARED.keys() - {"event_not_sent", "not_noted"}


def test_nothing_is_logged_or_signalled_past_the_events() -> None:
    assert loggings() == []


def test_what_goes_past_them_is_found(tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "it.py").write_text(PAST_EVENTS)
    assert loggings(tmp_path / "pack") == [
        "pack.it:7 logger.warning",
        "pack.it:11 logging.getLogger('celery_reliable').info",
        "pack.it:12 events.logger.error",
        "pack.it:13 signals.task_lost.send",
    ]
    assert tellers(tmp_path / "pack") == {Teller("pack.it", "three", "clock_stepped_back")}


def test_each_says_when_it_happens_and_is_in_the_one_namespace() -> None:
    for name, event in events.DECLARED.items():
        assert event.when.endswith("."), name
        assert event.levels, name
        assert getattr(events, name) is event


def test_the_page_lists_them() -> None:
    assert PAGE.read_text("utf-8") == page(), "write it: python -m tests.support.telling"


def test_the_signals_are_those_that_are_declared() -> None:
    made = {name: one for name, one in vars(signals).items() if isinstance(one, Signal)}
    assert set(made) == set(signals.__all__)
    assert signals.worker_declared is signals.worker_declared_dead
    wanted = {name for name, one in events.DECLARED.items() if one.in_signal is not None}
    assert wanted == {one.name for one in made.values()}
    for name in wanted:
        assert made[name] is events.DECLARED[name].signal


def test_a_line_is_a_name_with_fields_and_of_the_place_that_tells(
    log: pytest.LogCaptureFixture,
) -> None:
    events.ledger_awaited(seconds=0.25, retry=1, of="all", error=LedgerUnavailable("Not there."))
    (line,) = log.records
    assert line.getMessage() == "ledger_awaited seconds=0.25 retry=1 of=all error=Not there."
    assert (line.name, line.levelno) == ("celery_reliable", ERROR)
    assert line.funcName == "test_a_line_is_a_name_with_fields_and_of_the_place_that_tells"


@pytest.mark.parametrize(
    ("task_id", "shown"),
    [
        ("one\ntask_buried name=x", r"one\ntask_buried name=x"),
        ("half \udcff", r"half \udcff"),
        ("100 %s", "100 %s"),
        ("žluťoučký", "žluťoučký"),
    ],
)
def test_whoever_names_a_task_writes_no_line(
    log: pytest.LogCaptureFixture, task_id: str, shown: str
) -> None:
    events.publication_adopted(name="work", task_id=task_id)
    assert log.messages == [f"publication_adopted name=work id={shown}"]


@pytest.mark.parametrize(
    ("error", "shown"),
    [
        (LedgerUnavailable("Two\nlines."), "Two lines."),
        (ValueError("two\nlines"), r"ValueError('two\nlines')"),
        (_Awkward(), "_Awkward('<its str() raised RuntimeError>')"),
        (OSError("redis://user:s/e:c@r@host/1 is away"), "OSError('redis://**@host/1 is away')"),
        (ValueError("sentinel://a;redis://:secret@b"), "ValueError('sentinel://**@b')"),
        (
            ValueError("redis://h/0?password=secret&x=1"),
            "ValueError('redis://h/0?password=**&x=1')",
        ),
    ],
)
def test_an_error_is_one_line_without_passwords(
    log: pytest.LogCaptureFixture, error: Exception, shown: str
) -> None:
    events.broker_view_lost(error=error)
    assert log.records[0].getMessage() == f"broker_view_lost error={shown}"
    assert log.records[0].exc_info is None


def _kombu_error() -> Exception:
    from kombu.exceptions import OperationalError

    return OperationalError("away")


@pytest.mark.parametrize(
    ("error", "has_traceback"),
    [
        (KeyError("x"), True),
        (ConnectionResetError("x"), False),
        (LedgerUnavailable("x"), False),
        (_kombu_error(), False),
    ],
)
def test_a_fault_of_ours_has_a_traceback_and_a_server_that_is_away_has_none(
    log: pytest.LogCaptureFixture, error: Exception, has_traceback: bool
) -> None:
    events.pass_failed(error=error)
    assert (log.records[0].exc_info is not None) is has_traceback


def test_a_pass_has_a_line_when_it_has_done_something(log: pytest.LogCaptureFixture) -> None:
    heard = []

    def hear(sender: Any, report: SweepReport, **_: Any) -> None:
        heard.append((sender, report))

    app = _App()
    signals.pass_finished.connect(hear)
    try:
        for report in (SweepReport(looked_at=2), SweepReport(lost=1, duration_seconds=0.01)):
            events.pass_finished(app=app, report=report)
            assert heard.pop() == (app, report)
    finally:
        signals.pass_finished.disconnect(hear)
    assert log.messages == ["pass_finished lost=1 duration_seconds=0.01"]


@pytest.mark.parametrize(
    ("reason", "level"), [(Reason.FAILED, logging.WARNING), (Reason.LOST, logging.ERROR)]
)
def test_of_what_fails_by_itself_celery_has_said_more(
    log: pytest.LogCaptureFixture, reason: Reason, level: int
) -> None:
    events.task_buried(app=_App(), name="work", task_id="x", reason=reason, exception="E: e")
    (line,) = log.records
    assert line.levelno == level
    assert line.getMessage() == (
        f"task_buried name=work id=x reason={reason.value} attempt=0 losses=0 exception=E: e"
    )


def test_an_event_that_cannot_be_sent_is_logged(log: pytest.LogCaptureFixture) -> None:
    def refuse(kind: str, **fields: Any) -> None:
        sent.append((kind, fields))
        raise OSError("away")

    sent: list[tuple[str, dict[str, Any]]] = []
    with events.through(refuse):
        events.task_lost(
            app=_App(), name="work", task_id="x", attempt=1, losses=2, cause=Cause.CHILD_LOST,
            worker="w",
        )  # fmt: skip
    facts = {"attempt": 1, "losses": 2, "cause": "child_lost", "is_counted": True, "owner": "w"}
    assert sent == [("task-lost", {"uuid": "x", "name": "work", **facts})]
    counted = "attempt=1 losses=2 is_counted=True cause=child_lost worker=w exception="
    assert log.messages == [
        f"task_lost name=work id=x {counted}",
        "event_not_sent event=task-lost id=x error=OSError('away')",
    ]


def test_what_is_not_logged_is_not_put_together(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(ERROR, "celery_reliable")
    events.pass_failed(error=_Unseen())
    assert caplog.records == []


class _Unseen(Exception):
    def __repr__(self) -> str:
        pytest.fail("nobody reads it")


def test_a_mapping_is_told_item_by_item(log: pytest.LogCaptureFixture) -> None:
    try:

        @declared(DEBUG)
        def trimmed(*, count: int, reasons: dict[str, int]) -> None:
            """Some were trimmed."""

        trimmed(count=3, reasons={"failed": 2, "100%": 1})
    finally:
        events.DECLARED.pop("trimmed")
    assert log.records[0].getMessage() == "trimmed count=3 failed=2 100%=1"
