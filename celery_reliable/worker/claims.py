"""The attempt of a child process that died: a loss, unless it had ended before."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from billiard.einfo import ExceptionInfo
from billiard.exceptions import WorkerLostError
from celery import states
from celery.worker import state

from celery_reliable import events
from celery_reliable.app import reliable_of
from celery_reliable.attempt import MESSAGE, bury, claim_or_record
from celery_reliable.broker import GOES_FIRST
from celery_reliable.compat import note
from celery_reliable.compat.consumer import has_own_hook
from celery_reliable.context import current_worker
from celery_reliable.exceptions import LedgerRefused, LedgerUnavailable, said
from celery_reliable.ledger import Ledger, answers
from celery_reliable.log import logger
from celery_reliable.message import Stamp, text_as_sent
from celery_reliable.model import Cause, Claim, ClaimRequest, Reason, Record, State, SweepReport
from celery_reliable.options import is_unique, keep_ms, task_ref
from celery_reliable.recovery import Losses, is_in_chord, stored_end, try_to_announce

__all__ = [
    "PATIENCE_SECONDS",
    "end_child",
    "end_lost",
    "end_over_limit",
    "end_revoked",
    "end_stopped",
    "ended_by",
    "ending",
    "how_it_ended",
    "is_ending",
    "is_running_child",
    "lost_worker",
    "may_fail",
    "note_kills",
    "own_record",
]

#: What it could not tell in this time it tells later, or a look at claims without a process finds.
PATIENCE_SECONDS = 1.0


def ended_by(error: Exception) -> ExceptionInfo:
    """Return what billiard reports of a job that has ended by an error of its own, such as
    ``TimeLimitExceeded``.
    """
    try:
        raise error
    except Exception:
        return ExceptionInfo()


def lost_worker(error: BaseException) -> ExceptionInfo:
    """Return what billiard reports of a job whose process died, with *error* as the reason."""
    return ended_by(WorkerLostError(f"Worker exited prematurely: {error!r}"))


#: As long as billiard waits between SIGTERM and SIGKILL.
_TERM_SECONDS = 0.1
#: A killed process is gone within milliseconds, unless it hangs in the kernel.
_KILL_SECONDS = 1.0
_LOOK_SECONDS = 0.005


def is_running_child(pid: int | None) -> bool:
    """Whether *pid* is a child process of this one that has not ended.

    False for what other pools call a pid: this process, or the number of a greenlet.
    """
    if pid is None or pid <= 0 or pid == os.getpid():
        return False
    try:
        if sys.platform == "darwin":
            # Before Python 3.13 it has no `waitid`; an ended child counts until it is waited for.
            return os.getpgid(pid) in (pid, os.getpgrp())
        # WNOWAIT: the pool is to notice its end too.
        return os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None
    except (OSError, OverflowError):
        return False


def end_child(pid: int | None) -> None:
    """Stop a child process, as billiard does: SIGTERM, and shortly after it SIGKILL."""
    for number, seconds in ((signal.SIGTERM, _TERM_SECONDS), (signal.SIGKILL, _KILL_SECONDS)):
        if pid is None or not is_running_child(pid):
            return
        os.kill(pid, number)
        deadline = time.monotonic() + seconds
        while is_running_child(pid) and time.monotonic() < deadline:
            time.sleep(_LOOK_SECONDS)


#: The tokens of attempts that are over and whose end is being told.
_ending: set[str] = set()


@contextmanager
def ending(token: str) -> Iterator[None]:
    """Let `is_ending` be true of a claim's token."""
    _ending.add(token)
    try:
        yield
    finally:
        _ending.discard(token)


def is_ending(token: str) -> bool:
    """Whether the main process is about to end an attempt; Celery has forgotten its request."""
    return token in _ending


def _ledger_of(request: Any) -> Ledger:
    """Return the ledger as the main loop asks it, which has no time to wait."""
    return reliable_of(request.app).ledger.with_patience(PATIENCE_SECONDS)


def own_record(request: Any) -> Record | None:
    """Return the record of a delivery's task if it is running by this very delivery.

    Raises LedgerUnavailable and LedgerRefused, as all that follows where nothing else is said.
    """
    record = _ledger_of(request).find(request.id)
    if record is None or record.state is not State.RUNNING:
        return None
    # No other delivery has this token.
    return record if record.token == request.reliable_token else None


def may_fail(request: Any) -> bool:
    """Whether an attempt whose process is gone may be told of as failed: it has neither settled nor
    stored an outcome.  False also where the ledger does not say.

    If so, no call of a unique task is answered with the failure that is about to be stored.
    """
    with suppress(LedgerUnavailable, LedgerRefused):
        record = own_record(request)
        if record is None or stored_end(request.app, record):
            return False
        if is_unique(request.task):
            with suppress(LedgerUnavailable, LedgerRefused):
                _ledger_of(request).touch(record.claim, is_concluding=True)
        return True
    return False


def end_stopped(request: Any) -> None:
    """Settle what was revoked, or release what is to run again, now that its process is gone.
    What had stored its outcome by then has ended with that.  Errors of the ledger are only logged.
    """
    ledger = _ledger_of(request)
    with _logged(request):
        record = own_record(request)
        if record is None:
            return
        if request.is_revoked:
            ledger.settle(record.claim, outcome=states.REVOKED)
            return
        if Losses(request.app, ledger).has_ended_as_stored(record.claim, SweepReport()):
            return
        ledger.release(
            record.claim,
            due_in_ms=reliable_of(request.app).config.sweep_ms,
            is_unsent=request.reliable_is_let_go,
        )


def end_over_limit(request: Any, exc_info: Any, exc: Exception, *, is_owed: bool) -> None:
    """Call the hooks of an attempt whose time limit was up, as Celery does, then end it.

    The main process has stored its failure, or owes that (*is_owed*).  Errors of the ledger are
    only logged.
    """
    task, told = request.task, (request.id, request.args, request.kwargs)
    try:
        task.on_failure(exc, *told, exc_info)
        if has_own_hook(task, "after_return"):
            task.after_return(states.FAILURE, exc, *told, None)
    finally:
        with _logged(request):
            record = own_record(request)
            # What is owed can only be told from a dead letter.
            if record is not None and (type(task).dead_letter or is_owed):
                bury(
                    task,
                    record.claim,
                    Reason.TIME_LIMIT,
                    exc,
                    is_owed=is_owed,
                    patience_seconds=PATIENCE_SECONDS,
                )
            elif record is not None:
                _ledger_of(request).settle(record.claim, outcome=states.FAILURE)


def end_revoked(request: Any, *, expired: bool) -> None:
    """End the record of a task that was revoked, or whose publication has *expired*.

    A signal does not end an attempt at once, and a task may take its time or not mind it at all.
    Until its process is gone, or it has ended by itself, claim and lock are its own.
    """
    ledger = _ledger_of(request)
    # A revocation means the id, whichever publication of it; an expiry means this one.
    if expired:
        answer = ledger.cancel(
            request.id,
            epoch=Stamp.of(request.request_dict).epoch,
            by="it had expired",
        )
    else:
        answer = ledger.revoke(request.id)
    if isinstance(answer, answers.Running) and not is_running_child(request.worker_pid):
        record = own_record(request)
        if record is not None:
            ledger.settle(record.claim, outcome=states.REVOKED)


@contextmanager
def _logged(request: Any) -> Iterator[None]:
    try:
        yield
    except (LedgerUnavailable, LedgerRefused) as error:
        logger.error("end_not_recorded name=%s id=%s error=%s", request.name, request.id, error)


#: The pool notices a death at most so long after it.
_NOTICED_SECONDS = 15
#: What billiard and Celery write before and after how a lost process ended.
_BEFORE, _AFTER = "Worker exited prematurely: ", " Job: "
_LONGEST = 200
_MOUNTS = (Path("/sys/fs/cgroup"), Path("/sys/fs/cgroup/unified"))
_OWN_CGROUP = Path("/proc/self/cgroup")


def _events_file() -> Path | None:
    """Return the file with the counts of this process's cgroup; None where there is none."""
    with suppress(OSError):
        for line in _OWN_CGROUP.read_text().splitlines():
            if line.startswith("0::"):
                own = line[3:].lstrip("/")
                # Within a container its own cgroup is mounted as the root, whatever it is called
                # outside.
                places = [mount / name / "memory.events" for mount in _MOUNTS for name in (own, "")]
                return next((place for place in places if place.is_file()), None)
    return None


#: Where the kernel counts which processes of this one's cgroup it kills since memory has run out;
#: None where it does not: only cgroup v2 has that.  It names no process: when two are killed within
#: 15 seconds, and one of them by somebody else, both count.
_kills_file = _events_file()
#: The last counts, the oldest first.
_kills_seen: deque[int] = deque(maxlen=_NOTICED_SECONDS)


def note_kills() -> None:
    """Note how many processes of this one's cgroup the kernel has killed since memory has run out;
    to be called every second.
    """
    count = _count_kills()
    if count is not None:
        _kills_seen.append(count)


def _count_kills() -> int | None:
    with suppress(OSError, ValueError, StopIteration):
        lines = _kills_file.read_text().splitlines() if _kills_file is not None else []
        return next(int(line.split()[1]) for line in lines if line.startswith("oom_kill "))
    return None


def how_it_ended(error: BaseException, pid: int | None) -> str:
    """Return a line for people on how a child process ended, from the error that Celery made."""
    text = " ".join(said(error).split())
    text = text.removeprefix(_BEFORE).partition(_AFTER)[0].rstrip(".")[:_LONGEST]
    told = [text] if pid is None else [text, f"pid {pid}"]
    count = _count_kills()
    if "SIGKILL" in text and count is not None and _kills_seen and count > _kills_seen[0]:
        told.append("out of memory")
    return ", ".join(told)


def end_lost(request: Any, exc: BaseException) -> None:
    """Count the loss of a request's process, and let go of its message.

    Raises LedgerUnavailable and LedgerRefused; then nothing has been let go of.
    """
    ledger, config = _ledger_of(request), reliable_of(request.app).config
    record = own_record(request)
    claim = _claim_for_dead(request) if record is None else record.claim
    if claim is None:
        # It had settled, or published itself again, or was taken from this worker.
        state.task_ready(request)
        request.acknowledge()
        return
    record = record or ledger.find(request.id)
    end = "" if record is None else stored_end(request.app, record)
    if record is not None and end:
        # A chord has to be told of it first, or errbacks, which may take long.  Then the claim
        # stays, and is found as no process runs it.
        if end == states.SUCCESS and not is_in_chord(request.app, record):
            ledger.settle(
                claim,
                outcome=states.SUCCESS,
                by="its result was stored already",
                keep_ms=keep_ms(request.task),
            )
        state.task_ready(request)
        request.acknowledge()
        return
    answer = ledger.lose(
        claim,
        Cause.CHILD_LOST,
        max_losses=config.max_losses,
        due_in_ms=config.sweep_ms,
        detail=how_it_ended(exc, request.worker_pid),
        is_unsent=request.reliable_is_let_go,
    )
    # Before the burial is announced, as the result backend may be away.
    state.task_ready(request)
    if isinstance(answer, answers.Queued):
        if answer.losses == 1:
            # Once: a task that is lost again waits behind the others.
            note(request.message, GOES_FIRST, True)
        request.reject(requeue=True)
    else:
        request.acknowledge()
    if isinstance(answer, answers.Queued | answers.Spent):
        events.task_lost(
            app=request.app,
            name=request.task.name,
            task_id=request.id,
            attempt=claim.attempt,
            losses=answer.losses,
            cause=Cause.CHILD_LOST,
            worker=claim.worker,
            exception=str(exc),
        )
    if isinstance(answer, answers.Spent):
        if not request.reliable_is_opened:
            _seal(ledger, request.id)
        try_to_announce(request.app, ledger, request.id)


def _seal(ledger: Ledger, task_id: str) -> None:
    """Have nobody open the message of a buried task, which was lost as it was opened."""
    with suppress(LedgerUnavailable, LedgerRefused):
        letter = ledger.dead_letter(task_id)
        if letter is not None:
            ledger.announce(letter, "its process")


def _claim_for_dead(request: Any) -> Claim | None:
    """Claim in the name of a child that died before it could; None when that may not be.

    Otherwise a message that kills its process before the claim (as it is decoded, say) would never
    be counted.
    """
    worker = current_worker()
    if worker is None or request.worker_pid is None:
        return None
    stamp = Stamp.of(request.request_dict)
    told = (request.request_dict.get("properties") or {}).get(MESSAGE)
    made = ClaimRequest(
        task_ref(request.task, request.id, request.request_dict),
        stamp.epoch,
        stamp.generation,
        worker=worker.id,
        token=request.reliable_token,
        pid=request.worker_pid,
        is_over=True,
    )
    answer = claim_or_record(
        reliable_of(request.app).ledger,
        made,
        lambda: str(told or text_as_sent(request.message)),
        patience_seconds=PATIENCE_SECONDS,
    )
    if isinstance(answer, answers.NoLease):
        # What this worker held belongs to the sweeper now.
        request.reject(requeue=True)
    if not isinstance(answer, answers.Claimed):
        return None
    return made.claim(answer.attempt, answer.losses)
