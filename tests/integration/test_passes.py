"""Passes of the sweeper over records, without any worker."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from celery_reliable import overdue
from celery_reliable.application import reliable_of
from celery_reliable.envelope import Envelope
from celery_reliable.ledger import Ledger
from celery_reliable.model import Due, Reason, SweepReport
from celery_reliable.sweeper import Sweeper
from tests.integration.conftest import Project
from tests.integration.project.factory import Settings
from tests.support.redis_server import RedisServer


@pytest.fixture
def project_settings(project_settings: Settings) -> Settings:
    return Settings(
        project_settings.broker_url,
        project_settings.effects_url,
        reliable={"SWEEP_BATCH": 120, "DEAD_LETTER_MAX": 100},
    )


@pytest.fixture
def sweeper(project: Project) -> Iterator[Sweeper]:
    found = Sweeper(project.app)
    yield found
    found.close()


def bury(project: Project, count: int) -> Ledger:
    ledger = reliable_of(project.app).ledger
    for number in range(count):
        ledger.bury_message(
            f"letter-{number:04}",
            Reason.REJECTED,
            exception="",
            traceback="",
            message=Envelope(b"{}", "application/json", "utf-8", {}, {}, "", "celery").to_text(),
            name="project.work",
        )
    return ledger


def trim(sweeper: Sweeper) -> SweepReport:
    report = SweepReport()
    sweeper._trim(report)
    return report


def test_a_pass_trims_a_batch_and_says_when_more_is_left(
    project: Project, sweeper: Sweeper
) -> None:
    ledger = bury(project, 330)

    reports = [trim(sweeper) for _ in range(3)]

    assert [(one.trimmed, one.is_full) for one in reports] == [
        (120, True),
        (110, False),
        (0, False),
    ]
    assert ledger.count_dead() == 100


def test_as_many_dead_letters_as_there_may_be_are_left_at_once(
    project: Project, sweeper: Sweeper
) -> None:
    ledger = bury(project, 500)

    sweeper.run_if_due()

    assert ledger.count_dead() == 100
    assert ledger.dead_letter("letter-0399") is None
    assert ledger.dead_letter("letter-0400") is not None


def test_an_entry_without_a_record_is_trimmed(
    project: Project, sweeper: Sweeper, redis_server: RedisServer
) -> None:
    ledger = bury(project, 101)
    redis_server.client().delete(ledger.keys.record("letter-0000"))

    trim(sweeper)

    assert ledger.count_dead() == 100


def test_what_is_too_old_is_trimmed_whatever_the_count(
    project: Project, sweeper: Sweeper, redis_server: RedisServer
) -> None:
    ledger = bury(project, 2)
    client = redis_server.client()
    client.hset(ledger.keys.record("letter-0001"), "buried_ms", 1000)
    client.zadd(ledger.keys.dead, {"letter-0001": 1000})

    assert trim(sweeper).trimmed == 1
    assert ledger.dead_ids() == ["letter-0000"]


def test_a_send_that_failed_does_not_make_the_next_rarer(
    project: Project, sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = project.send("work", 0)
    ledger = reliable_of(project.app).ledger

    def seen() -> Due:
        [due] = ledger.all_due(start=0, limit=1)
        return due

    def refuse(*args: object) -> None:
        raise ConnectionError("the broker is away")

    with monkeypatch.context() as patched:
        patched.setattr(overdue, "resend", refuse)
        for _ in range(7):
            sweeper.overdue._send(seen(), SweepReport())
            left_ms = int(seen().due_ms) - ledger.workers.time_ms()
            assert left_ms <= sweeper.config.sweep_ms
    assert ledger.find(result.id).resends == 0  # type: ignore[union-attr]

    report = SweepReport()
    sweeper.overdue._send(seen(), report)

    assert report.resent == 1
    left_ms = int(seen().due_ms) - ledger.workers.time_ms()
    assert left_ms <= sweeper.config.queued_ms
