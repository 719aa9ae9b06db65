"""What is logged of passes that beat has sent."""

from __future__ import annotations

import logging

import pytest
from celery.app import trace
from celery.beat import info as beat_info
from celery.worker import strategy

import celery_reliable.beat


def log(name: str) -> None:
    """What Celery logs of a task as it is sent, received, and has succeeded."""
    beat_info("Scheduler: Sending due task %s (%s)", "entry", name)
    context = {"id": "id", "name": name, "return_value": "None", "runtime": 0.1, "args": ()}
    strategy.logger.info(trace.LOG_RECEIVED, context, extra={"data": context})
    trace.info(trace.LOG_SUCCESS, context)


@pytest.mark.parametrize(("name", "lines"), [(celery_reliable.beat.sweep.name, 0), ("work", 3)])
def test_a_pass_is_not_logged_as_others_are(
    caplog: pytest.LogCaptureFixture, name: str, lines: int
) -> None:
    with caplog.at_level(logging.INFO):
        log(name)

    assert len(caplog.records) == lines
