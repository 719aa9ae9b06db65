"""Which dead letters a pass of the sweeper keeps, without any worker."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import pytest

from celery_reliable.app import reliable_of
from celery_reliable.ledger import Ledger
from celery_reliable.ledger.answers import Begun
from celery_reliable.model import Reason, SweepReport
from celery_reliable.operations import Desk, check
from celery_reliable.recovery.sweeper import Sweeper
from tests.integration.conftest import Project
from tests.integration.desk.faults import found
from tests.integration.letters import put
from tests.integration.project.factory import Settings


@pytest.fixture
def project_settings(project_settings: Settings) -> Settings:
    """Small batches, and few dead letters that are kept."""
    return replace(project_settings, reliable={"SWEEP_BATCH": 120, "DEAD_LETTER_MAX": 100})


def bury(
    project: Project,
    count: int,
    reason: Reason = Reason.REJECTED,
    prefix: str = "letter",
    **to: Any,
) -> Ledger:
    for number in range(count):
        put(project, f"{prefix}-{number:04}", reason=reason, **to)
    return reliable_of(project.app).ledger


def trim(sweeper: Sweeper) -> None:
    """Do what a pass does about dead letters, though another has just finished."""
    passes, lease_ms = sweeper.ledger.passes, sweeper.config.lease_ms
    begun = passes.begin(
        "trim", interval_ms=0, ttl_ms=60_000, interruption_ms=600_000, lease_ms=lease_ms
    )
    assert isinstance(begun, Begun)
    report = SweepReport()
    sweeper.retention.trim(begun, report)
    passes.end("trim", asdict(report))


def test_a_flood_pushes_out_its_own_letters_and_no_others(
    project: Project, sweeper: Sweeper
) -> None:
    bury(project, 20, Reason.FAILED, "charge", name="project.charge")
    bury(project, 20, Reason.LOST, "poison")
    for turn in range(3):
        ledger = bury(project, 250, Reason.UNPROCESSABLE, f"flood-{turn}", name="project.unknown")
        sweeper.run_if_due(most_passes=4)
        for _ in range(3):
            trim(sweeper)
        left = [id_ for id_, _ in ledger.letters_after(None, 1000)]
        assert sorted(left) == sorted(
            [f"charge-{n:04}" for n in range(20)]
            + [f"poison-{n:04}" for n in range(20)]
            + [f"flood-{turn}-{n:04}" for n in range(190, 250)]
        )


def test_what_was_trimmed_says_so_and_is_counted(
    project: Project, sweeper: Sweeper, desk: Desk
) -> None:
    ledger = bury(project, 110)
    client = project.redis.client()
    key, dead = ledger.keys.record("letter-0000"), ledger.keys.dead
    client.hset(key, "since_ms", 1000)
    (group,) = ledger.groups.counts()
    member = f"{group.group.id} %015d letter-0000"
    client.zrem(ledger.keys.grouped, member % client.zscore(dead, "letter-0000"))
    client.zadd(ledger.keys.grouped, {member % 1000: 0})
    client.zadd(dead, {"letter-0000": 1000})

    trim(sweeper)

    old, surplus = desk.tasks.get("letter-0000"), desk.tasks.get("letter-0005")
    assert (old.outcome, surplus.outcome) == ("TRIMMED", "TRIMMED")
    assert "DEAD_LETTER_SECONDS" in old.why.sentence
    assert "DEAD_LETTER_MAX" in surplus.why.sentence
    # What is too old went as the settings say; what was too many is counted.
    assert desk.status().trimmed == 9


def test_a_store_that_fills_up_is_found_and_one_that_loses_letters_is_an_error(
    project: Project, sweeper: Sweeper, desk: Desk
) -> None:
    ledger = bury(project, 79)
    sweeper.run_if_due()
    assert found(desk) == set()
    bury(project, 1, prefix="another")
    assert found(desk) == {"dead_letters_fill"}
    bury(project, 150, Reason.FAILED, "flood")
    trim(sweeper)
    trim(sweeper)

    assert ledger.count_dead() == 100
    (finding,) = (one for one in check(desk.status()) if one.name == "dead_letters_trimmed")
    assert finding.severity == "error"
    # The share of those that are left is told still when that is over.
    assert found(desk, recent_seconds=0) == {"dead_letters_fill"}
