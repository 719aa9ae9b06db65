"""Which dead letters a pass of the sweeper keeps, without any worker."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from celery_reliable.app import reliable_of
from celery_reliable.ledger import Ledger
from celery_reliable.message.envelope import Envelope
from celery_reliable.model import Reason, SweepReport
from celery_reliable.recovery.sweeper import Sweeper
from tests.integration.conftest import Project


def bury(
    project: Project, count: int, reason: Reason = Reason.REJECTED, prefix: str = "letter"
) -> Ledger:
    ledger = reliable_of(project.app).ledger
    for number in range(count):
        ledger.bury_message(
            f"{prefix}-{number:04}",
            reason,
            exception="",
            traceback="",
            message=Envelope(b"{}", "application/json", "utf-8", {}, {}, "", "celery").to_text(),
            name="project.work",
        )
    return ledger


def trim(sweeper: Sweeper) -> SweepReport:
    report = SweepReport()
    sweeper.retention.trim(report)
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


def test_an_entry_without_a_record_is_trimmed(project: Project, sweeper: Sweeper) -> None:
    ledger = bury(project, 101)
    project.redis.client().delete(ledger.keys.record("letter-0000"))

    trim(sweeper)

    assert ledger.count_dead() == 100


def test_what_is_too_old_is_trimmed_whatever_the_count(project: Project, sweeper: Sweeper) -> None:
    ledger = bury(project, 2)
    client = project.redis.client()
    client.hset(ledger.keys.record("letter-0001"), "buried_ms", 1000)
    client.zadd(ledger.keys.dead, {"letter-0001": 1000})

    assert trim(sweeper).trimmed == 1
    assert ledger.dead_ids() == ["letter-0000"]


def test_many_ordinary_failures_do_not_push_the_rare_ones_out(
    project: Project, sweeper: Sweeper
) -> None:
    rare = [Reason.LOST, Reason.UNPROCESSABLE, Reason.TIME_LIMIT]
    for reason in rare:
        # More than a batch of them, between the others.
        bury(project, 45, reason, reason.value)
        bury(project, 20, Reason.FAILED, f"before-{reason.value}")
    ledger = bury(project, 300)

    sweeper.run_if_due()

    assert ledger.count_dead() == 100
    left = ledger.dead_ids(limit=1000)
    # There are more rare ones than may be kept: the oldest of these are gone too.
    assert sorted(left) == sorted(
        [f"lost-{n:04}" for n in range(35, 45)]
        + [f"unprocessable-{n:04}" for n in range(45)]
        + [f"time_limit-{n:04}" for n in range(45)]
    )


def test_the_poison_is_kept_for_as_long_as_there_is_anything_else(
    project: Project, sweeper: Sweeper
) -> None:
    bury(project, 90, Reason.LOST, "poison")
    for turn in range(3):
        ledger = bury(project, 250, Reason.FAILED, f"failed-{turn}")
        for _ in range(4):
            trim(sweeper)
        left = ledger.dead_ids(limit=1000)
        assert [name for name in left if name.startswith("poison")] == [
            f"poison-{n:04}" for n in reversed(range(90))
        ]
        # Of the others the latest.
        assert sorted(set(left) - {f"poison-{n:04}" for n in range(90)}) == [
            f"failed-{turn}-{n:04}" for n in range(240, 250)
        ]
    # What somebody takes away from under a pass's nose costs a look more, and nothing else.
    for number in range(90):
        ledger.discard(f"poison-{number:04}")
    bury(project, 250, Reason.FAILED, "last")
    for _ in range(4):
        trim(sweeper)
    assert sorted(ledger.dead_ids(limit=1000)) == [f"last-{n:04}" for n in range(150, 250)]


def test_a_pass_over_many_rare_ones_asks_for_a_batch(
    project: Project, sweeper: Sweeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger = bury(project, 400, Reason.LOST)
    bury(project, 200, Reason.FAILED, "failed")
    asked: list[int] = []
    reasons_of = sweeper.ledger.reasons_of

    def counting(task_ids: Sequence[str]) -> list[str]:
        asked.append(len(task_ids))
        return reasons_of(task_ids)

    monkeypatch.setattr(sweeper.ledger, "reasons_of", counting)
    passes = 0
    while ledger.count_dead() > 100:
        asked.clear()
        trim(sweeper)
        assert sum(asked) <= 120
        passes += 1
        assert passes < 20
    assert ledger.dead_ids(limit=100) == [f"letter-{n:04}" for n in reversed(range(300, 400))]


def test_a_pass_knows_the_groups_of_those_that_stay(project: Project, sweeper: Sweeper) -> None:
    ledger = bury(project, 130)
    bury(project, 2, Reason.LOST, "rare")

    sweeper.run_if_due()

    counts = {one.group.reason: one.count for one in ledger.groups.counts()}
    assert counts == {"rejected": 98, "lost": 2}
    for number in range(130):
        ledger.discard(f"letter-{number:04}")
    trim(sweeper)
    assert [one.group.reason for one in ledger.groups.counts()] == ["lost"]
