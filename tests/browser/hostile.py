"""Names, ids, arguments and tracebacks that would like to be markup, or to break a page."""

from __future__ import annotations

import json

from celery_reliable.ledger import Ledger
from celery_reliable.ledger.answers import OtherGeneration, Unknown
from celery_reliable.message import Envelope
from celery_reliable.model import Reason, State, TaskRef

__all__ = ["CANARY", "INJECTED", "LARGE", "MARKUP", "Hostile"]

#: What a script sets that runs, and what finds an element that was made of text.
CANARY = "__owned"
INJECTED = ".injected, script:not([src]):not([type='application/json']), [href^='javascript:']"

MARKUP = (
    f"</script><script>window.{CANARY}=1</script>"
    f"'\"><img src=/none class=injected onerror=window.{CANARY}=2>"
    f"</pre></textarea></title><svg class=injected onload=window.{CANARY}=3>"
    "{{ 7|add:7 }}{% now %}&lt;b&gt;&#60;"
)
#: Ends lines, rings, turns text around, and is no text at all.
_BROKEN = "\x00\x07\x1b[2J\x7f\r\n\u2028\u202e\ufffe\ud83d\udc7a\ud800"
LARGE = 1_000_000

_LEASE_MS = 600_000


def _name(what: str) -> str:
    # A half surrogate can be in a message, which is JSON; names are UTF-8 in the ledger.
    return f"{what}{MARKUP}{_BROKEN[:9]}"


class Hostile:
    """A worker, tasks that live, and dead letters, all of whose values are hostile."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self.worker = _name("worker")
        self.queue = _name("queue")
        self.dead, self.queued, self.parked, self.unread = (
            _name(state) for state in ("dead/../", "queued%2F?#", "parked;", "unread ")
        )
        ledger.workers.register(
            self.worker,
            lease_ms=_LEASE_MS,
            client_id=0,
            facts={"nodename": self.worker, "hostname": self.worker, "queues": [self.queue]},
        )
        self._publish(self.queued, State.QUEUED)
        self._publish(self.parked, State.PARKED)
        for task_id, body in ((self.dead, None), (self.unread, b"\xff\x00<script>")):
            ledger.bury_message(
                task_id,
                Reason.FAILED,
                exception=f"{_name('Error')}: {MARKUP}{_BROKEN}",
                traceback=f"{MARKUP}{_BROKEN[:8]}\n" + "y" * LARGE,
                message=self._message(task_id, body),
                name=_name("task"),
            )

    def end(self) -> None:
        """Leave nothing but dead letters."""
        for task_id in (self.queued, self.parked):
            self._ledger.revoke(task_id)
        self._ledger.workers.deregister(self.worker, in_unacked=0)

    def _message(self, task_id: str, body: bytes | None = None) -> str:
        arguments = [MARKUP + _BROKEN, "x" * LARGE]
        headers = {
            "id": task_id,
            "task": _name("task"),
            "argsrepr": MARKUP + _BROKEN,
            "kwargsrepr": MARKUP + _BROKEN,
            "origin": MARKUP + _BROKEN,
            "root_id": MARKUP + _BROKEN,
            "parent_id": MARKUP + _BROKEN,
            "reliable_origin": MARKUP + _BROKEN,
            "lang": MARKUP + _BROKEN,
            "eta": MARKUP,
            "retries": MARKUP,
            MARKUP: MARKUP + _BROKEN,
        }
        if body is None:
            body = json.dumps([arguments, {MARKUP: _BROKEN}, {}]).encode()
        envelope = Envelope(
            body, "application/json", "utf-8", headers, {"priority": MARKUP}, "", self.queue
        )
        return envelope.to_text()

    def _publish(self, task_id: str, state: State) -> None:
        task = TaskRef(task_id, _name("task"), None, 0)
        while True:
            epoch = self._ledger.senders.new_epoch(0)
            answer = self._ledger.record(
                task,
                epoch=epoch,
                state=state,
                due_in_ms=_LEASE_MS,
                message=self._message(task_id),
                queue=self.queue,
            )
            if isinstance(answer, OtherGeneration):
                self._ledger.generation = answer.current
            elif not isinstance(answer, Unknown):
                break
        self._ledger.senders.answered(epoch)
