"""What beat's schedule has of the package's tasks.  Nothing here talks to a server."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from celery_reliable.doctor.setups import WorkerSetup
from celery_reliable.doctor.wording import listed
from celery_reliable.model import Finding

__all__ = ["check_rows", "check_schedule"]

_SWEEP: Final = "celery_reliable.sweep"
_ROWS: Final = "celery_reliable.rows"
#: Keeps its schedule in the database.
_ELSEWHERE: Final = "django_celery_beat"
_OURS: Final = "celery_reliable."


def check_schedule(
    schedule: Mapping[str, Any], workers: Sequence[WorkerSetup]
) -> Iterator[Finding]:
    """Yield what is wrong with a schedule: the entries of `beat_schedule`, by name.

    *workers*: those that live, or what the settings would make.
    """
    tasks = {name: _task_of(entry) for name, entry in schedule.items()}
    sweeps = sorted(name for name, task in tasks.items() if task == _SWEEP)
    wrong = {
        name: task
        for name, task in tasks.items()
        if task is not None and task.startswith(_OURS) and task not in (_SWEEP, _ROWS)
    }
    if wrong:
        named = ", ".join(f"{name} ({task})" for name, task in sorted(wrong.items()))
        yield Finding(
            "celery_reliable.sweep_misnamed",
            "warning",
            f"The beat schedule has tasks of the package that there are not: {named}.",
            f"The sweeper's task is {_SWEEP}; in a Django project there is {_ROWS} too.",
        )
    if len(sweeps) > 1:
        yield Finding(
            "celery_reliable.sweep_scheduled_twice",
            "warning",
            f"The beat schedule has {len(sweeps)} entries for {_SWEEP}: {', '.join(sweeps)}.",
            "Leave one. (None is needed: workers sweep by themselves.)",
        )
    if not sweeps and workers and all(one.pool == "gevent" for one in workers):
        yield Finding(
            "celery_reliable.sweep_unscheduled",
            "warning",
            "All pools are of greenlets (gevent), where a task that computes holds up passes, and "
            f"no beat schedule has {_SWEEP}.",
            f'Add {{"task": "{_SWEEP}", "schedule": 30.0}} to beat_schedule, and a small prefork '
            "worker to run it.",
        )


def check_rows(
    schedule: Mapping[str, Any], rows: Sequence[str], scheduler: str = ""
) -> Iterator[Finding]:
    """Yield a warning where nobody looks after rows with tasks: those of the tasks or models that
    *rows* names.

    *scheduler*: the setting `beat_scheduler`, by which the schedule may be elsewhere.
    """
    if rows and _ELSEWHERE not in scheduler and _ROWS not in map(_task_of, schedule.values()):
        yield Finding(
            "celery_reliable.rows_unscheduled",
            "warning",
            f"There are rows with tasks ({listed(rows, 5)}), and no beat schedule has {_ROWS}.",
            f'Add {{"task": "{_ROWS}", "schedule": 60.0}} to beat_schedule.',
        )


def _task_of(entry: Any) -> str | None:
    task = entry.get("task") if isinstance(entry, Mapping) else getattr(entry, "task", None)
    return str(task) if task else None
