"""What is done to many dead letters: one, a group, those that fit, or all."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Annotated, Any

from kombu.utils.limits import TokenBucket

from celery_reliable.exceptions import UnknownDeadLetter
from celery_reliable.ledger import Look
from celery_reliable.model import DeadLetter
from celery_reliable.operations.audit import Outcome, noted
from celery_reliable.operations.dead_letters import CannotReplay, DeadLetters, ToQueue
from celery_reliable.operations.filters import EVERYTHING, Filter
from celery_reliable.operations.letter_groups import LetterGroups
from celery_reliable.operations.operation import BadParameter, Param, Progress
from celery_reliable.operations.pages import Position
from celery_reliable.operations.part import Part
from celery_reliable.operations.task_acts import DryRun
from celery_reliable.operations.views import Done, as_json
from celery_reliable.operations.walks import Kind, Walk
from celery_reliable.operations.words import utc
from celery_reliable.recovery import MOST_BYTES

__all__ = ["Bulk"]

#: Replays a second, unless somebody says otherwise: they run among the other tasks.
_DEFAULT_RATE = 100.0
#: Letters after which the groups are told.
_AT_ONCE = 50
#: An index of groups that lags behind is waited for.

#: Ids that are given as examples.
_MOST_EXAMPLES = 5
#: A second, where nobody says how many: more than anything could do.
_NO_RATE = 1e9
#: A rate is kept to from one act to the next that goes on with it, unless it is slower than this.
_LONGEST_REST_SECONDS = 5.0

#: Dead letters by their ids.
LetterIds = Annotated[
    tuple[Annotated[str, Param(min_length=1, max_length=1000)], ...],
    Param("By their ids.", most=1000, is_argument=True, metavar="[ID]..."),
]
All = Annotated[bool, Param("Act on all dead letters.")]
Group = Annotated[str, Param("The dead letters of this group (its id).", max_length=1000)]
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
        is_part = bool(self.group or self.wanted.given)
        if not (self.ids or is_part or self.is_all):
            raise BadParameter("", "Which dead letters? Give ids, a group, a filter, or say all.")
        if (self.is_all and (self.ids or is_part)) or (self.ids and is_part):
            raise BadParameter("", "Give ids, or all, or a group and a filter: one of them.")
        if self.ids and self.cursor:
            raise BadParameter("", "A cursor does not go with ids: give the same ids again.")

    def as_dict(self) -> dict[str, Any]:
        """The same for the audit, without what is not asked for."""
        found: dict[str, Any] = {"filter": self.wanted.given} if self.wanted.given else {}
        if self.ids:
            found["ids"] = [*self.ids[:_MOST_EXAMPLES]]
            found["ids_given"] = len(self.ids)
        if self.group:
            found["group"] = self.group
        return found or {"all": True}


class _Pace:
    """How many of them, how fast, and until when; reckoned from now on.

    Lets *rate* pass a second, evenly, until its time is over; the first passes anyway.
    """

    def __init__(self, rate: float | None, most: int | None, seconds: float | None) -> None:
        self.most = most
        #: By `time.monotonic`.
        self.deadline = None if seconds is None else time.monotonic() + seconds
        self._bucket = TokenBucket(rate or _NO_RATE)
        self._is_begun = False

    def is_over(self) -> bool:
        """Whether the next could only pass when the time is over."""
        passes_at = time.monotonic() + self._bucket.expected_time()
        return self.deadline is not None and self._is_begun and passes_at > self.deadline

    def wait(self) -> None:
        """Return when the next may pass."""
        self._is_begun = True
        while not self._bucket.can_consume():
            time.sleep(self._bucket.expected_time())

    def rest(self) -> None:
        """Return when the next may pass, as the first of another act, which knows no pace; at once
        when nobody would wait for so long.
        """
        if (left := self._bucket.expected_time()) <= _LONGEST_REST_SECONDS:
            time.sleep(left)


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
        letters = DeadLetters(self.app, ledger=self.ledger)
        if to_queue:
            letters.check_queue(to_queue)
        how = {"rate": rate, "limit": limit, "seconds": seconds, "to_queue": to_queue}
        return self._act(
            "replay",
            by,
            _Chosen(ids, all_, group, filter_, before, cursor),
            how,
            partial(letters.replay_seen, to_queue=to_queue, by=by),
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
            partial(DeadLetters(self.app, ledger=self.ledger).discard_seen, by=by),
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
        seconds, place = how["seconds"], Position.of(chosen.cursor)
        pace = _Pace(None if dry_run else how.get("rate"), how["limit"], seconds)
        if chosen.group:
            LetterGroups(self.app, self.ledger).get(chosen.group)
        before_ms = self.ledger.workers.time_ms()
        if chosen.before:
            before_ms = min(before_ms, round(chosen.before.timestamp() * 1000))
        walk = None
        if not chosen.ids:
            walk = Walk(
                self.app,
                self.ledger,
                chosen.wanted,
                before_ms,
                kind=Kind.DEAD,
                groups=[chosen.group] if chosen.group else None,
                place=place,
                # Who is buried in this very millisecond may have been replayed in it.
                until_ms=before_ms - 1,
                most=None,
                deadline=pace.deadline,
            )
        before = utc(before_ms)
        note = noted(self.ledger, name, by, {**chosen.as_dict(), **how, "before": as_json(before)})
        with nullcontext(Outcome()) if dry_run else note as outcome:

            def told(now: Done) -> None:
                outcome.done, outcome.failed, outcome.problem = now.done, now.failed, now.problem
                if progress is not None and not dry_run:
                    # `before` leads on, and takes nothing twice.
                    rest: dict[str, Any] = {"before": now.before}
                    if pace.most is not None:
                        rest["limit"] = max(1, pace.most - now.done)
                    progress(now.done + now.gone + now.failed, rest)

            begun = Done(
                run=outcome.run,
                before=before,
                done=0,
                is_dry_run=dry_run,
            )
            return self._run(chosen, walk, begun, act, pace, told)

    def _run(
        self,
        chosen: _Chosen,
        walk: Walk | None,
        done: Done,
        act: Callable[[DeadLetter], str | None],
        pace: _Pace,
        progress: Callable[[Done], None],
    ) -> Done:
        """Do it to each letter that is meant: of the *walk*, or without one with the ids."""
        progress(done)
        for look in walk or self._with_ids(chosen):
            letter = None if look is None else look.letter
            if letter is None:
                done = replace(done, gone=done.gone + 1)
                continue
            is_enough = pace.most is not None and done.done >= pace.most
            if is_enough or pace.is_over():
                if not is_enough:
                    pace.rest()
                before = walk.before if walk is not None else None
                return replace(done, is_whole=False, cursor=before.cursor if before else "")
            pace.wait()
            done = _after(letter, done, act)
            progress(done)
            if done.unsent:
                break
        if walk is None:
            return replace(done, is_whole=not done.unsent)
        if not walk.is_over:
            return replace(done, is_whole=False, cursor=walk.cursor)
        return done

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
    return replace(
        done,
        done=done.done + 1,
        unsent=done.unsent + bool(problem),
        problem=problem or done.problem,
        examples=(*done.examples, letter.task_id)[:_MOST_EXAMPLES],
    )
