"""Runs: one task on several workers, on each of them once."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from celery_reliable.ledger.answers import AssignAnswer, BeginRunAnswer, EndRunAnswer
from celery_reliable.ledger.answers.named import Assigned, Waits
from celery_reliable.ledger.caller import Caller
from celery_reliable.ledger.keys import Keys
from celery_reliable.ledger.replies import ms_of, text_of
from celery_reliable.ledger.transitions import Transition

__all__ = ["Run", "Runs"]

_ASSIGN: Transition[AssignAnswer] = Transition("assign", AssignAnswer)
_BEGIN_RUN: Transition[BeginRunAnswer] = Transition("begin_run", BeginRunAnswer)
_END_RUN: Transition[EndRunAnswer] = Transition("end_run", EndRunAnswer)


@dataclass(frozen=True)
class Run:
    """A run, and which worker each of its members has.

    Attributes:
        only: patterns of the workers; none: any.
        members: task id -> the worker that it is assigned to, first, and those that it had and may
            yet begin on; none while it waits.
    """

    id: str
    name: str
    only: tuple[str, ...]
    begun_ms: int
    members: dict[str, tuple[str, ...]]


class Runs:
    """The runs of a namespace.  Raises what `Ledger` raises."""

    def __init__(self, caller: Caller, keys: Keys) -> None:
        self._caller = caller
        self._keys = keys

    def begin(
        self, run: str, members: Sequence[str], *, name: str, only: Sequence[str], due_in_ms: int
    ) -> BeginRunAnswer:
        """Note a run and the ids of its members, before they are published.

        In *due_in_ms* a pass looks whether it is over.
        """
        return self._caller.call(
            _BEGIN_RUN,
            [self._keys.run(run), self._keys.runs],
            [run, name, json.dumps([*only]), due_in_ms, *members],
        )

    def assign(
        self,
        run: str,
        member: str,
        workers: Sequence[str],
        *,
        patience_seconds: float | None = None,
    ) -> str | None:
        """Give a member the first of *workers* that no other member has; return its name, empty
        while each has one.  None: nobody knows of the run any more.
        """
        answer = self._caller.call(
            _ASSIGN,
            [self._keys.run(run), self._keys.runs],
            [member, "", run, *workers],
            patience_seconds,
        )
        if isinstance(answer, Assigned):
            return answer.worker
        return "" if isinstance(answer, Waits) else None

    def confirm(self, run: str, member: str, worker: str) -> None:
        """Note that a member begins on this worker alone; on none, where it is empty."""
        keys = self._keys
        self._caller.call(_ASSIGN, [keys.run(run), keys.runs], [member, worker or "-", run])

    def look_later(self, run: str, due_ms: str, *, due_in_ms: int) -> EndRunAnswer:
        """Look at a run again in *due_in_ms*, as it goes on."""
        return self._ended(run, due_ms, "", due_in_ms)

    def end(self, run: str, due_ms: str, *, keep_ms: int) -> EndRunAnswer:
        """Forget a run that is over, in *keep_ms*."""
        return self._ended(run, due_ms, str(keep_ms), 0)

    def _ended(self, run: str, due_ms: str, keep_ms: str, due_in_ms: int) -> EndRunAnswer:
        return self._caller.call(
            _END_RUN,
            [self._keys.run(run), self._keys.runs],
            [run, due_ms, keep_ms, due_in_ms],
        )

    def find(self, run: str) -> Run | None:
        """Return a run; None of one that is forgotten, or never was."""
        found: dict[bytes, bytes] = self._caller.read(
            "run", lambda client: client.hgetall(self._keys.run(run))
        )
        told = {text_of(name): text_of(value) for name, value in found.items()}
        if not told:
            return None
        return Run(
            run,
            told.get(":name", ""),
            tuple(json.loads(told.get(":only") or "[]")),
            int(told.get(":begun_ms") or 0),
            {
                name: tuple(filter(None, value.split("\n")))
                for name, value in told.items()
                if not name.startswith(":")
            },
        )

    def known(self, limit: int) -> list[str]:
        """Return the ids of runs that are not over, as far as passes know; at most *limit*."""
        found: list[bytes] = self._caller.read(
            "runs", lambda client: client.zrange(self._keys.runs, 0, limit - 1)
        )
        return [text_of(name) for name in found]

    def due(self, limit: int) -> list[tuple[str, str]]:
        """Return the runs that are to be looked at by now, and when that was, in ms."""

        def read(client: Any) -> list[tuple[bytes, float]]:
            found: list[tuple[bytes, float]] = client.zrangebyscore(
                self._keys.runs, "-inf", ms_of(client.time()), start=0, num=limit, withscores=True
            )
            return found

        found = self._caller.read("runs that are due", read)
        return [(text_of(name), f"{score:.0f}") for name, score in found]
