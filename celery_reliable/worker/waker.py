"""The waker: the thread of a worker that lets tasks begin at their moment."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from celery_reliable.app import Reliable
from celery_reliable.exceptions import ReliableError
from celery_reliable.ledger import Bell, Ledger, answers, dues_of
from celery_reliable.log import logger
from celery_reliable.model import Due
from celery_reliable.native_threads import NativeThread

__all__ = ["Waker"]

#: For so long one worker is believed to wake the fleet's tasks; then another may.
_LEASE_MS = 2000
_AT_ONCE = 200
#: A server that does not answer, or refuses, is asked so often.
_PAUSE_SECONDS = 1.0
#: Who may not hear the bell looks so often.
_DEAF_SECONDS = 0.05


class Waker(NativeThread):
    """Lets out of the ledger what has waited for its moment.  One worker of the fleet does so at a
    time; when that is gone another one does, within two seconds.

    It runs beside the passes, which may take longer than a task may be late.  *send* is given what
    the ledger cannot put into a queue, for their thread.  *worker*: a name that no other has.
    """

    # It wakes the passes' thread.
    shares_locks = True

    def __init__(
        self, reliable: Reliable, worker: str, send: Callable[[Sequence[Due]], None]
    ) -> None:
        super().__init__("celery-reliable-waker")
        self._worker = worker
        self._send = send
        self._queued_ms = reliable.config.queued_ms
        self._reliable = reliable
        #: Whether this worker is the waker, as far as it knows.
        self._is_it = False

    def run(self) -> None:
        """Wake until told to stop."""
        # Here, as connections belong to the kind of thread that made them.
        ledger, wait = self._reliable.ledger.with_patience(0.0), 0.0
        bell = Bell(ledger.connector, ledger.keys)
        while not self.stop_asked(0.0 if self._is_it else wait):
            if self._is_it and not bell.wait(wait):
                self.stop_asked(min(wait, _DEAF_SECONDS))
            if self.stop_asked():
                break
            wait = self._turn(ledger)
            if not self._is_it:
                # Else it would take a ring from the worker that is it now.
                bell.close()
        bell.close()

    def _turn(self, ledger: Ledger) -> float:
        """Let out what may begin by now; return the seconds after which to ask again."""
        try:
            answer = ledger.moments.wake(
                self._worker,
                lease_ms=_LEASE_MS,
                limit=_AT_ONCE,
                due_in_ms=self._queued_ms,
            )
        except Exception as exc:
            # What is due is sent by a pass.
            level = logging.DEBUG if isinstance(exc, ReliableError) else logging.ERROR
            logger.log(level, "not_woken error=%s", exc, exc_info=exc)
            self._is_it = False
            return _PAUSE_SECONDS
        self._is_it = isinstance(answer, answers.Woken)
        if isinstance(answer, answers.Woken) and answer.ids_and_times:
            self._send(dues_of(answer.ids_and_times))
        return answer.wait_ms / 1000
