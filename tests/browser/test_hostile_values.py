"""What tasks and messages are called and hold is text on every page, and never more."""

from __future__ import annotations

import json
from collections.abc import Iterator
from urllib.parse import quote, urlencode

import pytest

from celery_reliable.ledger import Ledger
from celery_reliable.ledger.answers import OtherGeneration, Unknown
from celery_reliable.message import Envelope
from celery_reliable.model import Reason, State, TaskRef
from celery_reliable.operations import Desk
from tests.browser.visitor import DESK, Visitor

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
        self._publish(self.parked, State.WAITING)
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


@pytest.fixture
def hostile(desk: Desk) -> Iterator[Hostile]:
    found = Hostile(desk.ledger)
    yield found
    found.end()


def look_at(visitor: Visitor, address: str, expected: int = 200) -> None:
    """Look whether the page that is open is whole, and nothing became markup."""
    status, size = visitor.arrived()
    assert status == expected, (address, status)
    assert size < 4 * LARGE, address
    assert visitor.driver.execute_script(f"return window.{CANARY} || 0") == 0
    injected = [one.get_attribute("outerHTML") for one in visitor.all(INJECTED)]
    assert injected == [], address
    assert visitor.console() == [], address


def test_every_page_shows_them_as_text(visitor: Visitor, hostile: Hostile, desk: Desk) -> None:
    visitor.log_in("root")

    for address in visitor.walk():
        look_at(visitor, address)
    # With the arguments, too.
    for link in letters(visitor):
        visitor.driver.get(link)
        visitor.follow(visitor.find("#desk-arguments"))
        look_at(visitor, link)
    # And an id is the same when it comes back from a page.
    for link in letters(visitor):
        visitor.driver.get(link)
        visitor.follow(visitor.find("#desk-discard"))
        look_at(visitor, link)
        visitor.follow(visitor.find("#desk-yes"))
        look_at(visitor, link)

    assert desk.letters.count() == 0


def test_what_is_asked_for_comes_back_as_text(visitor: Visitor) -> None:
    visitor.log_in("root")
    here = f"{DESK}deadletter/"
    asked = urlencode({"task": MARKUP, "worker": MARKUP})
    words = urlencode(
        {"task": MARKUP, "reason": MARKUP, "state": MARKUP, "older_than_seconds": MARKUP}
    )

    for path, status in (
        (f"?{asked}", 200),
        (f"groups/?{asked}", 200),
        (f"tasks/?{asked}", 200),
        (f"act/discard_dead_letters/?done=1&{asked}", 200),
        (f"?{words}", 400),
        (f"tasks/?{words}", 400),
        (f"act/replay_dead_letters/?to_queue={quote(MARKUP)}&{words}", 400),
        (f"?cursor={quote(MARKUP)}", 400),
        (f"?group={quote(MARKUP)}", 404),
        (f"tasks/task/{quote(MARKUP, safe='')}/", 404),
    ):
        visitor.open(here + path)
        if status != 200:
            visitor.refused(status)
        look_at(visitor, path, status)


def letters(visitor: Visitor) -> list[str]:
    visitor.open(f"{DESK}deadletter/")
    found = visitor.links("[data-letter] th a")
    assert len(found) == 2
    return found
