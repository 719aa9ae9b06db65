"""What is done to many dead letters: one, a group, those that fit, or all."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Annotated, Any

from kombu.utils.limits import TokenBucket

from celery_reliable.clock import utc
from celery_reliable.exceptions import UnknownDeadLetter
from celery_reliable.ledger import Look
from celery_reliable.model import DeadLetter
from celery_reliable.operations.dead_letters import CannotReplay, DeadLetters, LetterGroups, ToQueue
from celery_reliable.operations.history import noted
from celery_reliable.operations.listing import EVERYTHING, Filter, Kind, Position, Walk
from celery_reliable.operations.operation import BadParameter, DryRun, Param, Part, Progress
from celery_reliable.operations.views import Done, as_json
from celery_reliable.recovery import MOST_BYTES

__all__ = ["Bulk"]

#: Replays a second, unless somebody says otherwise: they run among the other tasks.
_DEFAULT_RATE = 100.0
#: Ids that are given as examples.
_MOST_EXAMPLES = 5
#: A second, where nobody says how many: more than anything could do.
_NO_RATE = 1e9

#: Dead letters by their ids.
LetterIds = Annotated[
    tuple[Annotated[str, Param(min_length=1)], ...],
    Param("By their ids.", most=1000, is_argument=True, metavar="[ID]..."),
]
All = Annotated[bool, Param("Act on all dead letters.")]
Group = Annotated[str, Param("The dead letters of this group (its id).")]
Most = Annotated[int | None, Param("The largest number to list or to act on.", ge=1)]
#: A person at a terminal interrupts an act instead.
Seconds = Annotated[float | None, Param("Answer after so long; one is done anyway.", ge=0, le=10)]
Before = Annotated[
    datetime | None,
    Param("Leave out later dead letters: the time at which an interrupted act began."),
]
Cursor = Annotated[str, Param("Where an act with the same choice has ended.", max_length=10_000)]


@dataclass(frozen=True)
class _Chosen:
    """Which dead letters are meant: those with *ids*; or those of a *group*, or of all, that fit
    *wanted*.  Who means all has to say it.  Raises BadParameter.

    Only those are meant that were buried *before* a time of the ledger's clock, or before the act
    begins.  Who goes on with what was interrupted, and gives the time at which that began, does
    not take what was replayed and died again.  *cursor* is where an act of the same choice has
    ended: what was looked at is not looked at again.
    """

    ids: tuple[str, ...]
    is_all: bool
    group: str
    wanted: Filter
    before: datetime | None
    cursor: str

    def __post_init__(self) -> None:
        if sum((bool(self.ids), self.is_all, bool(self.group or self.wanted.given))) != 1:
            raise BadParameter(
                "", "Which dead letters? Give ids, or all, or a group and a filter: one of them."
            )
        if self.ids and self.cursor:
            raise BadParameter("", "A cursor does not go with ids: give the same ids again.")


class Bulk(Part):
    """Acts on dead letters, one after the other, over one connection, with few of them in memory.

    An act may be killed at any point and begun again: what was done to a letter stays done, and it
    is none any more.  Each act is noted in the audit when it begins and when it ends.  Raises what
    the ledger raises, and UnknownGroup; what was done until then is in the audit, if that can be
    written.
    """

    def replay(
        self,
        *,
        by: str,
        ids: LetterIds = (),
        all_: All = False,
        group: Group = "",
        filter_: Filter = EVERYTHING,
        dry_run: DryRun = False,
        rate: Annotated[
            float | None, Param("Dead letters a second.", ge=0.01, le=100_000)
        ] = _DEFAULT_RATE,
        limit: Most = None,
        seconds: Seconds = None,
        before: Before = None,
        cursor: Cursor = "",
        to_queue: ToQueue = "",
        progress: Progress | None = None,
    ) -> Done:
        """Return dead letters to the back of their queues, the oldest first: by id, a group, those
        that fit, or all.

        The tasks keep their ids and get fresh budgets of losses and retries.  The act may be
        interrupted and repeated: what was replayed is no dead letter any more.  What is not whole
        is continued by the same call with before (and cursor, if any) of the answer.

        Raises BadParameter, and CannotReplay where there is no such queue.  It ends at the first
        message that cannot be sent, as the broker is away: the sweeper would send all of them at
        once.
        """
        letters = DeadLetters(self.app, self.ledger)
        if to_queue:
            letters.check_queue(to_queue)
        how = {"rate": rate, "limit": limit, "seconds": seconds, "to_queue": to_queue}
        return self._act(
            "replay",
            by,
            _Chosen(ids, all_, group, filter_, before, cursor),
            how,
            partial(letters.replay, to_queue=to_queue, by=by),
            dry_run,
            progress,
        )

    def discard(
        self,
        *,
        by: str,
        ids: LetterIds = (),
        all_: All = False,
        group: Group = "",
        filter_: Filter = EVERYTHING,
        dry_run: DryRun = False,
        limit: Most = None,
        seconds: Seconds = None,
        before: Before = None,
        cursor: Cursor = "",
        progress: Progress | None = None,
    ) -> Done:
        """Remove dead letters for good, the oldest first: by id, a group, those that fit, or all.

        What is not whole is continued by the same call with before (and cursor, if any) of the
        answer.

        Raises BadParameter.
        """
        return self._act(
            "discard",
            by,
            _Chosen(ids, all_, group, filter_, before, cursor),
            {"limit": limit, "seconds": seconds},
            partial(DeadLetters(self.app, self.ledger).discard, by=by),
            dry_run,
            progress,
        )

    def _act(
        self,
        name: str,
        by: str,
        chosen: _Chosen,
        how: dict[str, Any],
        act: Callable[[DeadLetter], str | None],
        dry_run: bool,
        progress: Progress | None,
    ) -> Done:
        limit, seconds = how["limit"], how["seconds"]
        deadline = None if seconds is None else time.monotonic() + seconds
        bucket = TokenBucket((not dry_run and how.get("rate")) or _NO_RATE)
        before_ms = self.ledger.workers.time_ms()
        if chosen.before:
            before_ms = min(before_ms, round(chosen.before.timestamp() * 1000))
        walk = None if chosen.ids else self._walk(chosen, before_ms, deadline)
        before = utc(before_ms)
        about = {
            "filter": chosen.wanted.given,
            "ids": [*chosen.ids[:_MOST_EXAMPLES]],
            "ids_given": len(chosen.ids),
            "group": chosen.group,
            "all": chosen.is_all,
            **how,
            "before": as_json(before),
        }
        with noted(self.ledger, name, by, about, is_noted=not dry_run) as outcome:
            done = Done(run=outcome.run, before=before, done=0, is_dry_run=dry_run)
            for look in walk or self._with_ids(chosen):
                if look is None or look.letter is None:
                    done = replace(done, gone=done.gone + 1)
                    continue
                is_enough = limit is not None and done.done >= limit
                left_seconds = bucket.expected_time()
                # The first passes anyway.
                is_late = deadline is not None and time.monotonic() + left_seconds > deadline
                if is_enough or (is_late and (done.done or done.failed)):
                    place = walk.before if walk is not None else None
                    return replace(done, is_whole=False, cursor=place.cursor if place else "")
                while not bucket.can_consume():
                    time.sleep(bucket.expected_time())
                done = _after(look.letter, done, act)
                outcome.done, outcome.failed, outcome.problem = done.done, done.failed, done.problem
                if progress is not None and not dry_run:
                    # `before` leads on, and takes nothing twice.
                    rest = {} if limit is None else {"limit": max(1, limit - done.done)}
                    progress(done.done + done.gone + done.failed, {"before": before, **rest})
                if done.unsent:
                    break
            is_whole = not done.unsent if walk is None else walk.is_over
            return replace(done, is_whole=is_whole, cursor=walk.cursor if walk is not None else "")

    def _walk(self, chosen: _Chosen, before_ms: int, deadline: float | None) -> Walk:
        if chosen.group:
            LetterGroups(self.app, self.ledger).get(chosen.group)
        return Walk(
            self.ledger,
            chosen.wanted,
            before_ms,
            kind=Kind.DEAD,
            group=chosen.group,
            place=Position.of(chosen.cursor),
            # Who is buried in this very millisecond may have been replayed in it.
            until_ms=before_ms - 1,
            deadline=deadline,
        )

    def _with_ids(self, chosen: _Chosen) -> Iterator[Look | None]:
        """Give the tasks with these ids that are meant; None for each that is gone."""
        before_ms = chosen.before.timestamp() * 1000 if chosen.before else math.inf
        ids = list(dict.fromkeys(chosen.ids))
        looks = self.ledger.looks_in_groups(ids, most_bytes=MOST_BYTES)
        return (look for look in looks if look is None or look.record.since_ms < before_ms)


def _after(letter: DeadLetter, done: Done, act: Callable[[DeadLetter], str | None]) -> Done:
    """Do it to one letter, and return what has been done then."""
    try:
        problem = None if done.is_dry_run else act(letter)
    except UnknownDeadLetter:
        return replace(done, gone=done.gone + 1)
    except CannotReplay as exc:
        return replace(done, failed=done.failed + 1, problem=str(exc))
    unsent, problem = done.unsent + bool(problem), problem or done.problem
    return replace(done, done=done.done + 1, unsent=unsent, problem=problem)
