"""What can be done to dead letters, and how it is noted in the admin's log."""

from __future__ import annotations

from dataclasses import dataclass

from celery_reliable.contrib.django.desk.visits import Visit, shown
from celery_reliable.contrib.django.models import DeadLetter
from celery_reliable.operations import Right

__all__ = ["ACTS", "Act", "counted", "log"]


@dataclass(frozen=True)
class Act:
    """Something that is done to dead letters."""

    name: str
    right: Right
    done: str
    about: str


ACTS = {
    one.name: one
    for one in (
        Act(
            "replay",
            Right.REPLAY,
            "replayed",
            "They run again, under their ids, as soon as a worker takes them.",
        ),
        Act("discard", Right.DISCARD, "discarded", "Their messages are removed for good."),
    )
}


def log(visit: Visit, about: str, message: str) -> None:
    """Note what was done in the admin's log, beside the audit: to one letter, or to many."""
    visit.admin.log_change(visit.request, DeadLetter(task_id=shown(about, 200)), message)


def counted(number: int) -> str:
    """Return "1 dead letter", "2 dead letters"."""
    return f"{number} dead letter{'' if number == 1 else 's'}"
