"""The ledger's door for those who publish and run tasks: one method per transition, named after
its script.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from celery_reliable.ledger.burials import STOPPING_LOOK_MS, Burials
from celery_reliable.ledger.caller import Answer, Caller, Step
from celery_reliable.ledger.connect import Connector
from celery_reliable.ledger.keys import Keys
from celery_reliable.ledger.senders import Senders, remembered_ms, sender_of
from celery_reliable.ledger.workers import ALONE_MS, Workers
from celery_reliable.model import (
    Cause,
    Claim,
    Due,
    Reply,
    State,
    StoredResult,
    TaskRef,
)

__all__ = ["Ledger"]

_NO_RESULT = StoredResult("", "", "", 0, 0)


class Ledger(Burials):
    """What is known of every task and worker of one namespace; knows no Celery.

    Each method is one atomic step on the server and may be repeated.  All raise LedgerUnavailable
    and LedgerRefused. The ledger promises nothing beyond its Redis: a task is as durable as that
    server.
    """

    def __init__(
        self,
        connector: Connector,
        namespace: str,
        *,
        patience_seconds: float = 10.0,
        reply_timeout_seconds: float = 5.0,
        single: bool = False,
    ) -> None:
        self.connector = connector
        self.namespace = namespace
        self.keys = Keys(connector.key_prefix + namespace)
        client = connector.client(reply_timeout_seconds=reply_timeout_seconds, single=single)
        self._caller = Caller(client, connector.shown, patience_seconds)
        #: Leases, deaths and passes.
        self.workers = Workers(self._caller, self.keys)
        #: The generation of the last record; learned from the first refusal.
        self.generation = "1"
        #: Who of this process publishes.
        self.senders = Senders()

    def close(self) -> None:
        """Close the connections."""
        self._caller.close()

    # -- the publisher's transitions

    def record(
        self,
        task: TaskRef,
        *,
        epoch: str,
        state: State,
        due_in_ms: int,
        message: str,
        claim: Claim | None = None,
        queue: str = "",
        is_used: bool = False,
        heir: str = "",
        is_unrun: bool = False,
        patience_seconds: float | None = None,
        undone_patience_seconds: float | None = None,
    ) -> Answer:
        """Note a publication before its message is sent; *claim* is the running attempt that
        publishes its own id (*is_unrun*: before its body, so that its number is free again),
        *queue* the list on this server to send it to in the same step.  *is_used*: a task that had
        the id before may have left a result.  *heir*: of which replacement's canvas it is a member.

        An *epoch* of `senders` is known again also when the call comes late, and proves after a
        restart of the server that the publication was recorded; tell them of the answer.
        *undone_patience_seconds*: for as long as no server has taken it, instead.
        """
        sender, number = sender_of(epoch)
        step = Step(
            "record",
            [
                self.keys.record(task.id),
                self.keys.due,
                self.keys.meta,
                self.keys.claims(claim.worker if claim else ""),
                self.keys.dead,
                queue or self.keys.none,
                self.keys.sent(sender) if sender else self.keys.none,
            ],
            [
                task.id,
                epoch,
                self.generation,
                state.value,
                due_in_ms,
                message,
                task.name,
                claim.attempt if claim else "",
                _optional(task.max_losses),
                claim.token if claim else "",
                remembered_ms(number),
                "1" if is_used else "",
                heir,
                number,
                "1" if queue else "",
                "1" if is_unrun else "",
            ],
        )
        return self._caller.run(step, patience_seconds, undone_patience_seconds)

    def withdraw(
        self, task_id: str, epoch: str, *, patience_seconds: float | None = None
    ) -> Answer:
        """Take back a publication whose send raised."""
        return self._caller.call(
            "withdraw",
            [self.keys.record(task_id), self.keys.due],
            [task_id, epoch],
            patience_seconds,
        )

    # -- the transitions of the process that runs the task

    def claim(
        self,
        task: TaskRef,
        *,
        epoch: str,
        generation: str,
        worker: str,
        token: str,
        pid: int,
        message: str = "",
        is_over: bool = False,
        patience_seconds: float | None = None,
    ) -> Answer:
        """Begin an attempt, or hear why not; *is_over*: one whose process has died already.

        Without *message* UNRECORDED is answered when nothing proves that the task has ended.
        """
        step = self.claim_step(
            task,
            epoch=epoch,
            generation=generation,
            worker=worker,
            token=token,
            pid=pid,
            message=message,
            is_over=is_over,
        )
        answer = self._caller.run(step, patience_seconds)
        is_asked = answer.reply is Reply.UNRECORDED and bool(generation)
        if is_asked and self.has_ended(
            task.id, generation, epoch, patience_seconds=patience_seconds
        ):
            return Answer(Reply.ENDED, (), answer.is_repeated)
        return answer

    def claim_step(
        self,
        task: TaskRef,
        *,
        epoch: str,
        generation: str,
        worker: str,
        token: str,
        pid: int,
        message: str = "",
        is_over: bool = False,
    ) -> Step:
        """Return the same, for somebody to send who sends something to this server anyway."""
        return Step(
            "claim",
            [
                self.keys.record(task.id),
                self.keys.due,
                self.keys.meta,
                self.keys.worker(worker),
                self.keys.claims(worker),
            ],
            [
                task.id,
                epoch,
                generation,
                worker,
                token,
                pid,
                task.time_to_run_ms,
                task.name,
                _optional(task.max_losses),
                message,
                "" if is_over else ALONE_MS,
            ],
        )

    def touch(
        self, claim: Claim, *, time_to_run_ms: int, patience_seconds: float | None = None
    ) -> Answer:
        """Start the attempt's time to run anew."""
        return self._caller.call(
            "touch",
            [self.keys.record(claim.task_id), self.keys.due],
            [claim.task_id, claim.attempt, time_to_run_ms, claim.token],
            patience_seconds,
        )

    def settle(
        self,
        claim: Claim,
        result: StoredResult | None = None,
        *,
        object_key: str | None = None,
        patience_seconds: float | None = None,
    ) -> Answer:
        """Report that the attempt has an outcome: which Celery has stored, or *result*, which is
        stored in the same step, as the object is freed that the attempt holds.
        """
        result = result or _NO_RESULT
        return self._caller.call(
            "settle",
            [
                self.keys.record(claim.task_id),
                self.keys.due,
                self.keys.claims(claim.worker),
                result.key or self.keys.none,
                self.keys.lock(object_key) if object_key else self.keys.none,
            ],
            [
                claim.task_id,
                claim.attempt,
                claim.token,
                result.value,
                result.final,
                result.expires_seconds,
                "" if result.db == self.connector.db else result.db,
                self.connector.db,
                "1" if object_key else "",
            ],
            patience_seconds,
        )

    def conclude(self, claim: Claim, *, patience_seconds: float | None = None) -> Answer:
        """Note that the outcome of an attempt, whose object calls are answered with, is about to be
        stored.
        """
        return self._caller.call(
            "conclude",
            [self.keys.record(claim.task_id)],
            [claim.attempt, claim.token],
            patience_seconds,
        )

    def bequeath(self, claim: Claim, *, heir: str, patience_seconds: float | None = None) -> Answer:
        """Let the last member of a canvas that is about to be published take the id over: what is
        published as *heir*.
        """
        return self._caller.call(
            "bequeath",
            [self.keys.record(claim.task_id)],
            [claim.attempt, claim.token, heir],
            patience_seconds,
        )

    def replace(
        self,
        claim: Claim,
        *,
        due_in_ms: int,
        stored: str = "",
        members: Sequence[str] = (),
        patience_seconds: float | None = None,
    ) -> Answer:
        """Keep the record waiting for its own id, which a canvas will publish last.  *stored*: the
        result that is there of a task that had the id before.  *members*: ids of the canvas.
        """
        return self._caller.call(
            "replace",
            [self.keys.record(claim.task_id), self.keys.due, self.keys.claims(claim.worker)],
            [
                claim.task_id,
                claim.attempt,
                due_in_ms,
                claim.token,
                stored,
                json.dumps(list(members)),
            ],
            patience_seconds,
        )

    # -- how attempts end otherwise

    def lose(
        self,
        claim: Claim,
        cause: Cause,
        *,
        max_losses: int,
        due_in_ms: int,
        is_taken: bool = False,
        due_ms: str = "",
        is_unsent: bool = False,
        is_counted: bool = True,
        is_death: bool = False,
        is_suspect: bool = False,
        detail: str = "",
        patience_seconds: float | None = None,
    ) -> Answer:
        """Count a loss: back to queued, or buried when the budget is spent.

        *due_ms*: only if that is still when it is due.  *is_unsent*: no message of it comes back to
        its queue.  *is_counted*: False where its worker's death is not put down to it; then it is
        queued in any case.  *is_death*: it was lost with its worker; after the second such death
        it is a suspect, which runs in a worker that runs no other one.  *is_suspect*: at once.
        *detail*: of the cause, for people.
        """
        return self._caller.call(
            "lose",
            [
                self.keys.record(claim.task_id),
                self.keys.due,
                self.keys.claims(claim.worker),
                self.keys.taken(claim.worker),
                self.keys.dead,
            ],
            [
                claim.task_id,
                claim.attempt,
                cause.value,
                max_losses,
                due_in_ms,
                claim.token,
                int(is_taken),
                due_ms,
                int(is_unsent),
                "1" if is_counted else "",
                ("2" if is_suspect else "1") if is_death else "",
                detail,
            ],
            patience_seconds,
        )

    def release(
        self,
        claim: Claim,
        *,
        due_in_ms: int,
        is_unsent: bool = False,
        patience_seconds: float | None = None,
    ) -> Answer:
        """End an attempt whose worker is stopped on purpose; no loss is counted.  *is_unsent*: no
        message of it comes back to its queue.
        """
        return self._caller.call(
            "release",
            [self.keys.record(claim.task_id), self.keys.due, self.keys.claims(claim.worker)],
            [claim.task_id, claim.attempt, due_in_ms, claim.token, int(is_unsent)],
            patience_seconds,
        )

    def cancel(
        self,
        task_id: str,
        *,
        epoch: str = "",
        is_revoked: bool = False,
        object_key: str | None = None,
        patience_seconds: float | None = None,
    ) -> Answer:
        """Call off a task that nobody runs.  While an attempt of it is still to be stopped, its
        record stays, for whoever publishes the id or wants the object.  *is_revoked*: what runs is
        noted not to run again.  *object_key*: of the object that is freed with it.
        """
        return self._caller.call(
            "cancel",
            [
                self.keys.record(task_id),
                self.keys.due,
                self.keys.lock(object_key) if object_key else self.keys.none,
            ],
            [task_id, epoch, STOPPING_LOOK_MS, int(is_revoked), "1" if object_key else ""],
            patience_seconds,
        )

    # -- overdue records

    def due(self, limit: int) -> tuple[int, list[Due]]:
        """Return the server's time and at most *limit* records at which somebody must look, the
        oldest first.
        """
        answer = self._caller.call("due", [self.keys.due], [limit])
        values = [answer.text(i) for i in range(1, len(answer.values))]
        return int(answer.values[0]), [
            Due(*pair) for pair in zip(values[::2], values[1::2], strict=True)
        ]

    def resend(self, due: Due, *, due_in_ms: int, stored: str = "") -> Answer:
        """Take the right to send an overdue task again, with its message; held while a worker that
        lives is to stop an attempt of it.  *stored*: the result that is there, which does not prove
        that it has ended.
        """
        answer = self._resend(due, due_in_ms, stored)
        if answer.reply is Reply.HELD and self.is_outlived(due.task_id, answer.text(0)):
            answer = self._resend(due, due_in_ms, stored)
        return answer

    def _resend(self, due: Due, due_in_ms: int, stored: str) -> Answer:
        return self._caller.call(
            "resend",
            [self.keys.record(due.task_id), self.keys.due],
            [due.task_id, due.due_ms, due_in_ms, stored],
        )

    def has_ended(
        self,
        task_id: str,
        generation: str,
        epoch: str = "",
        *,
        patience_seconds: float | None = None,
    ) -> bool:
        """Whether the task of a message of *generation* and *epoch* is proved to have ended."""
        sender, number = sender_of(epoch)
        answer = self._caller.call(
            "ended",
            [
                self.keys.record(task_id),
                self.keys.meta,
                self.keys.sent(sender) if sender else self.keys.none,
            ],
            [generation, number],
            patience_seconds,
        )
        return answer.reply is Reply.ENDED

    def postpone(self, due: Due, *, due_in_ms: int, is_unsent: bool = False) -> Answer:
        """Look again later; *is_unsent*: the resend that gave this time was not sent."""
        return self._caller.call(
            "postpone",
            [self.keys.record(due.task_id), self.keys.due],
            [due.task_id, due.due_ms, due_in_ms, int(is_unsent)],
        )

    def postpone_all(self, later: Sequence[tuple[Due, int]]) -> None:
        """Look again later at many records, at each after its own time in ms."""
        self._caller.call_all(
            "postpone",
            [
                (
                    [self.keys.record(due.task_id), self.keys.due],
                    [due.task_id, due.due_ms, due_in_ms, 0],
                )
                for due, due_in_ms in later
            ],
        )


def _optional(value: int | None) -> int | str:
    return "" if value is None else value
