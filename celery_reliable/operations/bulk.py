"""What is done to many dead letters: one, a group, those that fit, or all."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from celery import Celery

from celery_reliable.exceptions import ReliableError, UnknownDeadLetter
from celery_reliable.ledger import Ledger
from celery_reliable.model import DeadLetter
from celery_reliable.operations.audit import noted
from celery_reliable.operations.dead_letters import CannotReplay, DeadLetters
from celery_reliable.operations.filters import Filter
from celery_reliable.operations.groups import LetterPages
from celery_reliable.operations.letter_walks import LetterWalk
from celery_reliable.operations.times import iso
from celery_reliable.recovery import MOST_BYTES

__all__ = ["DEFAULT_RATE", "Bulk", "Chosen", "Done"]

#: Replays a second, unless somebody says otherwise: they run among the other tasks.
DEFAULT_RATE = 100.0
#: Letters after which the groups are told, and whoever watches.
_AT_ONCE = 50
#: An index of groups that lags behind is waited for.
_CAUGHT_UP_AT_ONCE = 2_000
_CAUGHT_UP_SECONDS = 10.0
_MOST_EXAMPLES = 5
#: Who is later than this begins anew, rather than to make up for it all at once.
_MOST_BEHIND_SECONDS = 1.0


@dataclass(frozen=True)
class Chosen:
    """Which dead letters are meant: those with *ids*; or those of a *group*, or of all, that fit
    *wanted*.

    Only those are meant that were buried before *before_ms* of the server's clock, or before the
    act begins.  Who goes on with what was interrupted, and gives the time at which that began, does
    not take what was replayed and died again.
    """

    ids: tuple[str, ...] = ()
    group: str = ""
    wanted: Filter = field(default_factory=Filter)
    before_ms: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """The same for the audit, without what is not asked for."""
        found: dict[str, Any] = {"filter": self.wanted.given} if self.wanted.given else {}
        if self.ids:
            found["ids"] = [*self.ids[:_MOST_EXAMPLES]]
            found["ids_given"] = len(self.ids)
        if self.group:
            found["group"] = self.group
        return found or {"all": True}


@dataclass(frozen=True)
class Done:
    """What was done, or with a dry run what would be.

    Attributes:
        run: names the act in the audit.
        before_ms: only letters that were buried before it were meant.
        done: letters that were replayed or discarded; with a dry run, that fit.
        failed: that could not be: nobody can read them.
        gone: that somebody else replayed or discarded first, or that never were any.
        unsent: replayed letters whose message could not be sent; the sweeper sends it.
        is_dry_run: nothing was changed.
        is_whole: all that were meant were reached: neither *limit* nor a problem ended it.
        problem: what went wrong last; empty when nothing did.
        examples: some of their ids.
    """

    run: str
    before_ms: int
    done: int = 0
    failed: int = 0
    gone: int = 0
    unsent: int = 0
    is_dry_run: bool = False
    is_whole: bool = True
    problem: str = ""
    examples: tuple[str, ...] = ()

    def as_dict(self) -> dict[str, Any]:
        """The same as plain JSON values."""
        found = asdict(self)
        found["before"] = iso(found.pop("before_ms"))
        found["examples"] = [*self.examples]
        return found


Progress = Callable[[Done], None]


class _Pace:
    """Lets so many pass a second, evenly."""

    def __init__(self, rate: float | None) -> None:
        self._gap = 1 / rate if rate else 0.0
        self._next = time.monotonic()

    def wait(self) -> None:
        """Return when the next may pass."""
        if not self._gap:
            return
        now = time.monotonic()
        if self._next > now:
            time.sleep(self._next - now)
        elif now - self._next > _MOST_BEHIND_SECONDS:
            self._next = now
        self._next += self._gap


class Bulk:
    """Acts on dead letters, one after the other, over one connection, with few of them in memory.

    An act may be killed at any point and begun again: what was done to a letter stays done, and it
    is none any more.  Each act is noted in the audit when it begins and when it ends.  Raises what
    the ledger raises, and UnknownGroup; what was done until then is in the audit, if that can be
    written.
    """

    def __init__(self, app: Celery, ledger: Ledger, letters: DeadLetters) -> None:
        self._app = app
        self._ledger = ledger
        self._letters = letters
        self._pages = LetterPages(app, ledger)

    def count(
        self, chosen: Chosen, *, limit: int | None = None, progress: Progress | None = None
    ) -> Done:
        """Return how many are meant, as a dry run; nothing is changed."""
        done = replace(self._begun(chosen), is_dry_run=True)
        return self._run(chosen, done, lambda letter: "", None, limit, progress)

    def replay(
        self,
        chosen: Chosen,
        *,
        by: str,
        rate: float | None = DEFAULT_RATE,
        limit: int | None = None,
        to_queue: str = "",
        progress: Progress | None = None,
    ) -> Done:
        """Return letters to the back of their queues, the oldest first, under their ids, with
        counters at zero.

        It ends at the first message that cannot be sent, as the broker is away: the sweeper would
        send all of them at once.

        Args:
            chosen: which.
            by: who does it.
            rate: at most so many a second; None: as fast as it goes.
            limit: at most so many.
            to_queue: send them there instead of where they were sent before.
            progress: is told now and then.

        Raises:
            CannotReplay: there is no such queue.
        """
        if to_queue:
            self._letters.check_queue(to_queue)

        def act(letter: DeadLetter) -> str:
            return self._letters.replay_seen(letter, to_queue=to_queue, by=by).problem

        how = {"rate": rate, "limit": limit, "to_queue": to_queue}
        return self._noted("replay", by, chosen, how, act, progress)

    def discard(
        self,
        chosen: Chosen,
        *,
        by: str,
        rate: float | None = None,
        limit: int | None = None,
        progress: Progress | None = None,
    ) -> Done:
        """Remove letters for good, the oldest first; arguments as in `replay`."""

        def act(letter: DeadLetter) -> str:
            self._letters.discard_seen(letter, by=by)
            return ""

        return self._noted("discard", by, chosen, {"rate": rate, "limit": limit}, act, progress)

    def _begun(self, chosen: Chosen) -> Done:
        """Return an act that has done nothing yet, when all that it needs is there."""
        problem = ""
        if chosen.group:
            problem = self._caught_up()
            self._pages.group(chosen.group)
        now_ms = self._ledger.workers.time_ms()
        before_ms = now_ms if chosen.before_ms is None else min(chosen.before_ms, now_ms)
        return Done(secrets.token_hex(4), before_ms, problem=problem, is_whole=not problem)

    def _caught_up(self) -> str:
        """Return why a group may lack some of its letters; empty when it does not."""
        until = time.monotonic() + _CAUGHT_UP_SECONDS
        while not (state := self._ledger.groups.catch_up(_CAUGHT_UP_AT_ONCE)).is_complete:
            if time.monotonic() > until:
                return (
                    f"The group is known of {state.grouped} of {state.letters} letters so far; "
                    "passes go on with the others. Repeat this then."
                )
        return ""

    def _noted(
        self,
        name: str,
        by: str,
        chosen: Chosen,
        how: dict[str, Any],
        act: Callable[[DeadLetter], str],
        progress: Progress | None,
    ) -> Done:
        done = self._begun(chosen)
        about = {**chosen.as_dict(), **how, "before": iso(done.before_ms)}
        with noted(self._ledger, name, by, about, done.run) as outcome:

            def told(now: Done) -> None:
                outcome.done, outcome.failed, outcome.problem = now.done, now.failed, now.problem
                if progress is not None:
                    progress(now)

            return self._run(chosen, done, act, how["rate"], how["limit"], told)

    def _run(
        self,
        chosen: Chosen,
        done: Done,
        act: Callable[[DeadLetter], str],
        rate: float | None,
        limit: int | None,
        progress: Progress | None,
    ) -> Done:
        """Do it to each letter that is meant."""
        pace = _Pace(rate)
        over: list[DeadLetter] = []
        try:
            for letter in self._letters_of(chosen, done.before_ms):
                if limit is not None and done.done >= limit:
                    return replace(done, is_whole=False)
                pace.wait()
                done = self._after(letter, done, act)
                over.append(letter)
                if len(over) >= _AT_ONCE:
                    self._tell(over, done, progress)
                if done.unsent:
                    return replace(done, is_whole=False)
        finally:
            self._tell(over, done, progress)
        if chosen.ids:
            done = replace(done, gone=len(set(chosen.ids)) - done.done - done.failed)
        return done

    def _tell(self, over: list[DeadLetter], done: Done, progress: Progress | None) -> None:
        if not done.is_dry_run:
            # Where that fails, the groups are caught up later.
            with suppress(ReliableError):
                self._ledger.groups.left(over)
        over.clear()
        if progress is not None:
            progress(done)

    def _after(self, letter: DeadLetter, done: Done, act: Callable[[DeadLetter], str]) -> Done:
        """Do it to one letter, and return what has been done then."""
        try:
            problem = act(letter)
        except UnknownDeadLetter:
            return replace(done, gone=done.gone + 1)
        except CannotReplay as exc:
            return replace(done, failed=done.failed + 1, problem=str(exc))
        examples = done.examples
        if len(examples) < _MOST_EXAMPLES:
            examples += (letter.task_id,)
        return replace(
            done,
            done=done.done + 1,
            unsent=done.unsent + bool(problem),
            problem=problem or done.problem,
            examples=examples,
        )

    def _letters_of(self, chosen: Chosen, before_ms: int) -> Iterator[DeadLetter]:
        if not chosen.ids:
            # Who is buried in this very millisecond may have been replayed in it.
            yield from LetterWalk(
                self._app,
                self._ledger,
                chosen.wanted,
                before_ms,
                group=chosen.group,
                until_ms=before_ms - 1,
            )
            return
        ids = list(dict.fromkeys(chosen.ids))
        for start in range(0, len(ids), _AT_ONCE):
            found = self._ledger.letters_in_groups(
                ids[start : start + _AT_ONCE], most_bytes=MOST_BYTES
            )
            yield from (letter for letter in found if letter is not None)
