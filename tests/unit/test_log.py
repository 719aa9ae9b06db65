"""A line of the log: one line, without passwords; none of the passes that beat has sent."""

from __future__ import annotations

import logging

import pytest
from celery import Celery

from celery_reliable import ReliableTask
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
    ("error", "shown"),
    [
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


def test_a_broker_in_memory_is_warned_of_once(log: pytest.LogCaptureFixture) -> None:
    with Celery("shop", broker="memory://", set_as_current=False) as app:

        @app.task(base=ReliableTask, object_id="order", unique="queued", shared=False)
        def bill(order: int) -> None: ...

        for _ in range(2):
            bill.delay(1)

    (told,) = [one for one in log.messages if "lives in one process" in one]
    assert told
