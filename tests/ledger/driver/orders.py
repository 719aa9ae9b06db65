"""Orders in a world: who gives and ends them, and whether everybody obeys."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from celery_reliable.app import reliable_of
from celery_reliable.operations.stop_button import StopButton, UnknownOrder
from celery_reliable.operations.tasks import Revocations
from celery_reliable.operations.views import IfRunning
from celery_reliable.orders import OrderKind
from tests.ledger.driver import tasks
from tests.ledger.driver.clock import BEGIN_MS

if TYPE_CHECKING:
    from tests.ledger.driver.facts import Body, Call

#: What is promised: everybody obeys within that time.
OBEYED_MS = 3_000
#: Whoever did not hear of an order in these could not, or the clock has told otherwise.
_DEAF = frozenset(
    {"lost", "late", "away", "cut", "partition", "restart", "rollback", "clock", "hiccup", "long"}
)
_MOST = 2
_BY = "ann"


@dataclass(eq=False)
class Given:
    """One order.  Times are the truth, in ms; infinite: not yet."""

    kind: OrderKind
    target: str
    object_id: str | None = None
    id: str = ""
    given_ms: float = float("inf")
    over_ms: float = float("inf")

    def holds_back(self, body: Body, host: str) -> bool:
        """Whether a body is not to begin, at a worker."""
        if self.kind is OrderKind.PAUSE:
            # What goes to a worker's own queue is held by a pause of that.
            return body.queue == self.target
        if self.kind is OrderKind.DRAIN:
            return self.target == f"celery@{host}"
        if body.task == "plain" or body.task != self.target:
            return False
        return self.object_id is None or body.place == self.object_id

    def __str__(self) -> str:
        return f"{self.kind.value} of {self.target} {self.object_id or ''}".rstrip()


class Orders:
    """The orders of one world, as their operators know them."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.given: list[Given] = []
        #: When each worker sent its heartbeats.
        self.beats: dict[str, list[float]] = defaultdict(list)
        #: Whose tasks were stopped.
        self._stopped: list[Call] = []
        #: How many operators are about something.
        self._n_acts = 0

    @property
    def now_ms(self) -> float:
        return float(self.world.schedule.now_ms)

    # -- operators

    def act(self) -> None:
        """Somebody gives an order, ends one, or stops a task."""
        choice = self.world.choice
        standing = [one for one in self.given if one.over_ms > self.now_ms]
        what = choice.choice(("strike", "strike", "pause", "drain", "stop", "resume", "resume"))
        if what == "resume":
            if standing:
                self._start("resume", partial(self._resume, choice.choice(standing)))
        elif what == "stop":
            known = sorted({call.task_id for call in self.world.observer.calls.values()})
            if known:
                self._start("stop", partial(self._stop, choice.choice(known)))
        elif len(standing) < _MOST:
            order = self._order(OrderKind(what))
            for_seconds = choice.choice((None, None, 20.0))
            is_stop = choice.random() < 0.3
            self.given.append(order)
            self._start(what, lambda: self._give(order, for_seconds, is_stop))

    def _order(self, kind: OrderKind) -> Given:
        choice = self.world.choice
        if kind is OrderKind.PAUSE:
            queues = self.world.naming.pausable()
            return Given(kind, choice.choice(queues) if len(queues) > 1 else queues[0])
        if kind is OrderKind.DRAIN:
            up = [host.name for host in self.world.hosts if host.is_up]
            return Given(kind, f"celery@{choice.choice(up or ['w1'])}")
        name = choice.choice(self.world.climate.tasks)
        is_one = name in tasks.PLACED and choice.random() < 0.5
        return Given(kind, name, "x" if is_one else None)

    def end_all(self) -> None:
        """An operator ends what there is, and does not give up."""

        def run() -> None:
            while True:
                # Who gives one may not have been answered yet.
                is_last = not self._n_acts
                try:
                    for view in self._button().all():
                        self._resume(Given(view.kind, view.target, id=view.id))
                    if is_last:
                        return
                except self.world.failures as exc:
                    self.world.note(f"operator: resume ended by {exc!r:.80}")
                self.world.schedule.sleep(1.0)

        self.given.clear()
        self.world.schedule.start(self.world.process("operator resume"), "resume", run)

    def _start(self, what: str, run: Any) -> None:
        def act() -> None:
            try:
                run()
            except self.world.failures as exc:
                self.world.note(f"operator: {what} ended by {exc!r:.80}")
            finally:
                self._n_acts -= 1

        self._n_acts += 1

        self.world.schedule.start(self.world.process(f"operator {what}"), what, act)

    def _button(self) -> StopButton:
        return StopButton(self.world.app, reliable_of(self.world.app).ledger)

    def _give(self, order: Given, for_seconds: float | None, is_stop: bool) -> None:
        if for_seconds:
            order.over_ms = self.now_ms + for_seconds * 1000
        self.world.note(f"operator: {order}, for {for_seconds}, stop: {is_stop}")
        view = self._button().give(
            order.kind, order.target, by=_BY, object_id=order.object_id, for_seconds=for_seconds,
            stop=is_stop, later=True,
        )  # fmt: skip
        order.id, order.given_ms = view.id, self.now_ms
        self.world.note(f"operator: {order} is given")

    def _resume(self, order: Given) -> None:
        order.over_ms = min(order.over_ms, self.now_ms)
        self.world.note(f"operator: resume {order}")
        if order.id:
            try:
                self._button().resume([order.id], by=_BY)
            except UnknownOrder:
                pass

    def _stop(self, task_id: str) -> None:
        world = self.world
        world.note(f"operator: stop {task_id}")
        world.observer.excuse(task_id)
        calls = [
            call
            for call in world.observer.calls.values()
            if call.task_id == task_id
            and call.host is None
            and call.is_accepted
            and call.answered_with == task_id
        ]
        found = Revocations(world.app, reliable_of(world.app).ledger).revoke(
            [task_id], by=_BY, if_running=world.choice.choice((IfRunning.KILL, IfRunning.FINISH))
        )
        world.observer.excuse(task_id)
        world.note(f"operator: {task_id} is stopped: {found.ended} {found.running}")
        if found.done:
            for call in calls:
                # Before the answer an attempt may begin, which is then the one that is stopped.
                call.stopped_ms = self.now_ms
                self._stopped.append(call)

    # -- what is promised

    def check_begin(self, body: Body, host: Any, began_ms: float) -> str:
        """Return what is wrong with a body that begins; *began_ms*: when it was handed over."""
        if not _DEAF.isdisjoint(self.world.climate.kinds):
            return ""
        began_ms = min(began_ms, self._claimed_ms(body))
        call = body.call
        if call.stopped_ms is not None and began_ms > call.stopped_ms:
            return f"{call} runs again as {body}: it was stopped at {call.stopped_ms / 1000:.3f}"
        for order in self.given:
            is_over = self.now_ms >= order.over_ms
            if (
                not is_over
                and order.holds_back(body, host.name)
                and began_ms > self._known_ms(order, host)
            ):
                return f"{call} begins at {host.name} as {body}, against a {order}"
        return ""

    def _claimed_ms(self, body: Body) -> float:
        if body.task == "plain":
            return self.now_ms
        claimed_ms = self.world.observer.indexes.record(body.task_id).get("claimed_ms")
        return float(claimed_ms) - BEGIN_MS if claimed_ms else 0.0

    def _known_ms(self, order: Given, host: Any) -> float:
        """From when on a worker knows an order: who had two turns has asked for it once, and read
        it; who starts later knows it from the beginning.
        """
        if host.started_ms > order.given_ms:
            return float(host.started_ms)
        heard = [ms for ms in self.beats[host.name] if ms > order.given_ms]
        return max(heard[1], order.given_ms + OBEYED_MS) if len(heard) > 1 else float("inf")

    def check_results(self) -> str:
        """Return whose result is another than REVOKED, though it was stopped and never ended."""
        calls = self.world.observer.calls.values()
        if not _DEAF.isdisjoint(self.world.climate.kinds):
            return ""
        for call in self._stopped:
            is_alone = [one for one in calls if call.task_id in one.ids] == [call]
            if not is_alone or call.members or call.replays or call.is_buried:
                continue
            if call.name == "plain" or any(body.ended_ms is not None for body in call.bodies):
                continue
            state = self.world.app.backend.get_task_meta(call.task_id)["status"]
            if state != "REVOKED":
                return f"{call} was stopped, and its result is {state}"
        return ""
