"""Rows with open tasks, as a Django project's databases have them: does anybody look after them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from celery_reliable.doctor.wording import listed
from celery_reliable.model import Finding

__all__ = ["UNSEEN_SECONDS", "OpenRows", "check_open_rows", "open_rows", "set_rows_source"]

#: `celery_reliable.rows` looks at each row with an open task once in a minute or two.
UNSEEN_SECONDS: Final = 600.0


@dataclass(frozen=True, slots=True)
class OpenRows:
    """The rows of one model whose task waits or runs; of very many those that nobody has looked at
    for longest.

    Attributes:
        model: such as "shop.Order".
        waiting: how many wait for their task.
        running: how many say that it runs.
        unseen: at how many of these nobody has looked for UNSEEN_SECONDS.
        unseen_tasks: the names of the tasks of those.
        is_all: False: there are more open rows than were counted.
    """

    model: str
    waiting: int
    running: int
    unseen: int
    unseen_tasks: Sequence[str]
    is_all: bool


#: Set by the Django part: asks the project's databases.
_source: Callable[[], Sequence[OpenRows]] | None = None


def set_rows_source(source: Callable[[], Sequence[OpenRows]]) -> None:
    """Set what asks the databases for rows with open tasks.  The Django part calls this."""
    global _source
    _source = source


def open_rows() -> Sequence[OpenRows] | None:
    """Ask the databases for rows with open tasks: for each model one query, whose cost is bounded,
    and another one where nobody has looked at some.

    Returns None where the Django part is not loaded.  Raises what the databases raise.
    """
    return None if _source is None else _source()


def check_open_rows(rows: Sequence[OpenRows], tasks: Collection[str]) -> Iterator[Finding]:
    """Yield a warning for each model of which nobody looks after rows.

    *tasks*: the names of the tasks with rows that this app has.
    """
    for one in rows:
        if not one.unseen:
            continue
        unknown = [name for name in one.unseen_tasks if name not in tasks]
        count = f"{one.unseen}{'' if one.is_all else ' or more'}"
        yield Finding(
            "celery_reliable.rows_unseen",
            "warning",
            f"At {count} of the rows of {one.model} with an open task nobody has looked for "
            f"{UNSEEN_SECONDS / 60:g} minutes."
            + (f" This app has no such task with rows: {listed(unknown)}." if unknown else ""),
            (
                "Bring the task back under its name, or publish another one for these rows."
                if unknown
                else "celery_reliable.rows does not run, fails, or is too late: see whether beat "
                "runs and has it in its schedule, and whether a worker takes it within half a "
                "minute, after which it has expired."
            ),
        )
