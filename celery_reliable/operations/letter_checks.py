"""What is wrong with a namespace by its dead letters, which their groups count."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from celery_reliable.model import Finding, GroupOfLetters
from celery_reliable.operations.finding_words import PREFIX, counted, listed
from celery_reliable.operations.status import Status
from celery_reliable.operations.times import span

__all__ = ["burials", "room"]

#: So much of the room for dead letters may be taken.
_FILLED = 0.8


def burials(status: Status, *, failures: int) -> Iterator[Finding]:
    """What was put aside lately; *failures*: so many that failed are many."""
    lately = f"in the last {span(status.recent_seconds)}"
    lost = _recent(status, "lost", "time_limit")
    if lost:
        last = max(lost, key=lambda one: one.last_ms)
        yield Finding(
            f"{PREFIX}poison",
            "error",
            f"{_sum(lost, 'task')} crashed or hung their worker too often and were put aside "
            f"{lately}: {_named(lost)}. The last one: {last.group.cause or last.group.reason} "
            f"({last.example_id}).",
            "Something kills whoever runs them. `reliable show ID` has the history with signal and "
            "exit code; when it is mended, replay them.",
        )
    unreadable = _recent(status, "unprocessable")
    if unreadable:
        yield Finding(
            f"{PREFIX}unprocessable",
            "warning",
            f"{_sum(unreadable, 'message')} that no worker could run put aside {lately}: "
            f"{_named(unreadable)}.",
            "Workers without the code of these tasks, or a publisher in another format: replay "
            "them when the code is there.",
        )
    failed = _recent(status, "failed", "rejected")
    count = sum(one.recent for one in failed)
    if count >= failures:
        yield Finding(
            f"{PREFIX}many_failures",
            "error" if count >= 10 * failures else "warning",
            f"{_sum(failed, 'task')} failed for good {lately}: {_named(failed)}.",
            "`reliable dead-letters groups` shows what they died of; when it is mended, replay "
            "them. `reliable strike TASK` stops such a task meanwhile.",
        )


def room(status: Status, *, recent_seconds: float) -> Iterator[Finding]:
    """Whether dead letters are deleted before anybody has read them."""
    since_ms = status.now_ms - status.trimmed_ms
    if status.trimmed and 0 <= since_ms <= 1000 * recent_seconds:
        yield Finding(
            f"{PREFIX}dead_letters_trimmed",
            "error",
            f"Dead letters are being deleted, since there are more than DEAD_LETTER_MAX "
            f"({status.dead_letter_max}): the last one {span(since_ms / 1000)} ago, "
            f"{status.trimmed} in all.",
            "The largest group loses its oldest letters first (`reliable dead-letters groups`). "
            "Replay or discard what is there, or raise DEAD_LETTER_MAX.",
        )
    elif status.tasks["dead"] >= _FILLED * status.dead_letter_max:
        yield Finding(
            f"{PREFIX}dead_letters_fill",
            "warning",
            f"There are {status.tasks['dead']} dead letters. From {status.dead_letter_max} on "
            "(DEAD_LETTER_MAX) the oldest of the largest group are deleted.",
            "`reliable dead-letters groups` shows what they died of. Replay or discard them, or "
            "raise DEAD_LETTER_MAX.",
        )


def _recent(status: Status, *reasons: str) -> list[GroupOfLetters]:
    return [one for one in status.groups if one.recent and one.group.reason in reasons]


def _sum(groups: list[GroupOfLetters], noun: str) -> str:
    return counted(sum(one.recent for one in groups), noun)


def _named(groups: list[GroupOfLetters]) -> str:
    counts: Counter[str] = Counter()
    for one in groups:
        counts[one.group.task or "(not readable)"] += one.recent
    return listed([f"{name} ({count})" for name, count in counts.most_common()])
