"""A line of the log: one line, without passwords, with a traceback where that says something."""

from __future__ import annotations

import logging

import pytest

from celery_reliable.exceptions import LedgerUnavailable
from celery_reliable.log import logger


class _Awkward(Exception):
    def __repr__(self) -> str:
        raise RuntimeError("no")

    __str__ = __repr__


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG, "celery_reliable")
    return caplog


@pytest.mark.parametrize(
    ("task_id", "shown"),
    [
        ("one\ntask_buried name=x", r"one\ntask_buried name=x"),
        ("half \udcff", r"half \udcff"),
        ("100 %s", "100 %s"),
        ("žluťoučký", "žluťoučký"),
    ],
)
def test_the_name_of_a_task_adds_no_line(
    log: pytest.LogCaptureFixture, task_id: str, shown: str
) -> None:
    logger.info("publication_adopted name=%s id=%s", "work", task_id)
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
    logger.debug("broker_view_lost error=%s", error)
    assert log.messages == [f"broker_view_lost error={shown}"]


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
    logger.warning("pass_failed error=%s", error, exc_info=error)
    assert (log.records[0].exc_info is not None) is has_traceback
