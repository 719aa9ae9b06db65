"""Looks at a world from outside, and says which promise is broken.

It knows who published, which body is live in whose process and what ended, and what stands in the
ledger; it never goes by what a script answered.
"""

from __future__ import annotations

import json
from collections import defaultdict
from datetime import datetime
from typing import Any

from celery_reliable.context import running
from tests.ledger.driver import tasks
from tests.ledger.driver.bodies import run_body
from tests.ledger.driver.facts import Body, Call
from tests.ledger.driver.indexes import Indexes, Sight
from tests.ledger.driver.places import Places
from tests.ledger.driver.wire import words_of

#: What ends tasks by chance, so that an innocent may be charged for it.
_DEADLY = frozenset(
    {"kill_worker", "kill_child", "stop", "freeze", "suspend", "clock", "hiccup", "away"}
    | {"restart", "rollback", "cut", "lost", "late", "long", "partition"}
)
#: Of these kinds it is known whose deaths they are, or that they are nobody's.
_COUNTED = frozenset({"late", "kill_child"})
_LONG_MS = 72_000_000
_REMEMBERED_MS = 3_600_000
_GUILTY = ("poison", "poison_child", "send_back")
_LONG = ("long", "touch")
#: In so many turns a worker that is idle has had time enough to begin what waits.
_TURNS = 10
#: In spite of these whoever is idle takes what waits.
_CALM = frozenset(
    {"kill_worker", "kill_child", "freeze", "stop", "skew", "copies", "poison", "flush_scripts"}
    | {"codeless", "sweepers"}
)


class Fault(AssertionError):
    """A promise that was broken."""


class Observer:
    """Sees each step of one world."""

    def __init__(self, world: Any) -> None:
        self.world = world
        self.calls: dict[str, Call] = {}
        self.bodies: list[Body] = []
        self.indexes = Indexes(world.stage, is_apart=world.climate.is_apart)
        #: The highest attempt of each id, while its record lives.
        self._attempts: dict[str, int] = defaultdict(int)
        self._sight = Sight([], {}, {}, {})
        self._losses = 0
        #: When an operator last released what workers held.
        self.released_ms = -1.0
        #: What a body has found, for the world to raise.
        self.fault: Fault | None = None
        self.places = Places(world, self)
        #: How many processes were killed that ran it, by the ids of tasks.
        self._kills: dict[str, int] = defaultdict(int)
        #: In how many deaths of workers it was among what these had claimed, by the ids of tasks.
        self._beside: dict[str, int] = defaultdict(int)
        #: The epochs of the messages by which tasks were to be buried since the last look.
        self._buried_by: dict[str, set[str]] = defaultdict(set)
        #: Since when tasks wait for their canvas.
        self._waiting_since: dict[str, float] = {}
        self._waiting_for_dead: set[str] = set()
        #: Since which of their turns workers hold what they have not begun, by its delivery tag.
        self._fetched: dict[str, int] = {}
        #: Since which of their turns workers are idle while one message waits, the last turn that
        #: was looked at, and the message.
        self._idle: dict[Any, tuple[int, int, bytes]] = {}

    @property
    def now_ms(self) -> float:
        return float(self.world.schedule.now_ms)

    # Calls.

    def planned(
        self, nonce: str, task_id: str, name: str, place: str, host: Call | None = None
    ) -> Call:
        """Decide what the body of a publication will do."""
        choice, climate = self.world.choice, self.world.climate
        plan = choice.choice(climate.outcomes)
        if "poison" in climate.kinds and choice.random() < 0.2:
            plan = choice.choice(("poison", "poison_child"))
        if name == "plain" and plan not in ("ok", "long"):
            plan = "ok"
        call = self.calls[nonce] = Call(nonce, task_id, name, place, plan, host)
        if host is not None:
            host.members.append(call)
            call.plan = "ok"
        return call

    def began(self, call: Call) -> None:
        call.began_ms, server = self.now_ms, self.world.server
        # What is published before a pass has seen a restart is of the generation of before.
        is_seen = server.is_of_now(self.indexes.run_id_of_generation())
        call.n_runs, call.forward_ms = server.n_runs - (not is_seen), server.forward_ms
        call.is_second = call.may_be_second = self._is_alive(call.task_id)
        for other in self.calls.values():
            if other is not call and other.task_id == call.task_id and other.is_under_way:
                other.may_be_second = call.may_be_second = True

    def answered(self, call: Call, task_id: str = "") -> None:
        """*task_id*: what an accepted call is answered with."""
        call.answered_ms = self.now_ms
        call.is_accepted, call.answered_with = bool(task_id), task_id
        if call.name == "unique" and task_id != call.task_id:
            call.may_be_second = True

    def _is_alive(self, task_id: str) -> bool:
        return self._sight.states.get(task_id, "dead") not in ("dead", "over")

    def excuse(self, task_id: str = "") -> None:
        """Somebody may end a task, or all, as an operator may; what is called later is not meant,
        unless a copy of the command may come late.
        """
        for call in self.calls.values():
            if task_id in ("", call.task_id):
                call.is_excused = True

    def replayed(self, task_id: str) -> None:
        for call in self.calls.values():
            if call.task_id == task_id:
                call.replays += 1
                call.closed_ms = call.stopped_ms = None

    def killed(self, task_id: str) -> None:
        """A process is killed that a task was given to."""
        self._kills[task_id] += 1

    def worker_killed(self, worker: str) -> None:
        """A worker is killed."""
        for task_id in self.indexes.claimed_by(worker):
            self._beside[task_id] += 1

    def buries(self, data: bytes) -> None:
        """Somebody sends a burial: note for which message."""
        words = words_of(data)
        keys = int(words[2])
        task_id, attempt, epoch = (words[3 + keys + n].decode() for n in (0, 1, 10))
        if attempt:
            # Only what the current attempt has claimed.
            epoch = self.indexes.record(task_id).get("epoch", "")
        self._buried_by[task_id].add(epoch)

    def lost(self) -> None:
        """The server has lost what it knew: nothing is promised of that."""
        self._losses += 1
        self._attempts.clear()
        self._sight = self.indexes.look()
        for call in self.calls.values():
            call.is_excused, call.closed_ms, call.is_second = True, None, False
            call.stopped_ms = None
            call.is_lost = True

    # Bodies.

    def body(self, task: Any, nonce: str) -> Any:
        """The body of every task."""
        actor = self.world.schedule.current
        if task.request.id.startswith("h"):
            return None
        call = self.world.naming.call_of(nonce, task.request.id)
        attempt = running.get()
        body = Body(
            call, task.name, task.request.id, (*task.request.args, "")[1], actor.process,
            attempt.claim.worker if attempt else "", attempt.claim.attempt if attempt else 0,
            self.now_ms, (task.request.delivery_info or {}).get("routing_key", ""),
        )  # fmt: skip
        self.world.note(f"body of {body.task_id} {body} begins")
        eta = task.request.eta
        if eta and datetime.fromisoformat(eta).timestamp() > self.world.host_time.time() + 0.001:
            self.fault = self.fault or Fault(f"{call} begins before its ETA")
        try:
            if task.name == "plain":
                self._check_plain(body)
            else:
                self._check_begin(body)
        except Fault as fault:
            # To Celery what a body raises is its failure.
            self.fault = self.fault or fault
        if "orders" in self.world.climate.kinds:
            self._check_orders(body, actor)
        wrong = self.world.naming.check_begin(body) or self.places.check_begin(
            body, has_lost=self._losses > 0, released_ms=self.released_ms
        )
        if wrong:
            self.fault = self.fault or Fault(wrong)
        call.bodies.append(body)
        self.bodies.append(body)
        if body.task == call.name == "paced":
            self._check_pace(call)
        try:
            result = run_body(self.world, task, call, body)
        except Exception as exc:
            self._ended(body, type(exc).__name__)
            raise
        self._ended(body, "done")
        return result

    def _check_orders(self, body: Body, actor: Any) -> None:
        for host in self.world.hosts:
            for job in host.jobs:
                if job.actor is actor:
                    wrong = self.world.orders.check_begin(body, host, job.began_ms)
                    if wrong:
                        self.fault = self.fault or Fault(wrong)

    def _check_pace(self, begun: Call) -> None:
        """Of those that were published since some moment, the n-th begins n - 1 intervals after it
        at the earliest, however late the others were.
        """
        if self._losses or not self.world.climate.kinds.isdisjoint(("clock", "hiccup")):
            return
        # Not those of a canvas, which its members publish.
        since = sorted(
            one.began_ms
            for one in self.calls.values()
            if one.name == "paced" and one.bodies and one.began_ms is not None
        )
        for number, from_ms in enumerate(since):
            later = len(since) - number
            least_ms = from_ms + (later - 1) * tasks.PACE_SECONDS * 1000
            if (begun.began_ms or 0.0) >= from_ms and self.now_ms < least_ms - 2:
                self.fault = self.fault or Fault(
                    f"{begun} begins too early: {later} since {from_ms / 1000:.3f}"
                )

    def _ended(self, body: Body, how: str) -> None:
        if body.process.is_alive:
            body.ended_ms, body.how = self.now_ms, how
            self.world.note(f"body of {body.task_id} {body} ends: {how}")

    def _check_begin(self, body: Body) -> None:
        call = body.call
        if call.closed_ms is not None and self._is_sent_again(call):
            call.closed_ms, self._attempts[call.task_id] = None, 0
        if call.closed_ms is not None and self._is_known(call):
            raise Fault(f"{call} runs again as {body}: it had ended at {call.closed_ms / 1000:.3f}")
        if call.is_second and call.answered_ms is not None and call.host is None:
            raise Fault(f"{call} runs, though its id was alive when it was published")
        # One that the server forgot may go on beside the id's next life, and does not count in it;
        # nor does what its canvas publishes under the id.  And of one that it does not know to have
        # ended, a copy of its message makes a new record.
        is_forgotten = call.is_lost or (call.host is not None and call.host.is_lost)
        if not is_forgotten and (call.closed_ms is None or self._is_known(call)):
            if body.attempt <= self._attempts[body.task_id]:
                raise Fault(
                    f"{body} begins after attempt {self._attempts[body.task_id]} of {body.task_id}"
                )
            self._attempts[body.task_id] = body.attempt
        # What an operator has released counts as no loss.
        ran = (one for one in call.bodies if one.began_ms > self.released_ms)
        deaths = sum(one.is_suicide for one in ran)
        is_counted = not self._losses and self._is_known(call)
        if deaths > (tasks.MAX_LOSSES + 2) * (1 + call.replays) and is_counted:
            raise Fault(f"{call} runs again, after it has killed {deaths} processes")
        for other in self.bodies:
            if other.is_live and other.task != "plain":
                self._check_alone(body, other)

    def _check_plain(self, body: Body) -> None:
        """A plain task has no claim. While nothing goes wrong its one message is begun once, but
        where an operator said that nobody runs anything.
        """
        call = body.call
        before = [one for one in call.bodies if one.began_ms > self.released_ms]
        if before and not self.world.climate.kinds and not (call.is_excused or call.replays):
            raise Fault(f"the plain {call} runs again, and nothing had gone wrong")

    def _is_known(self, call: Call) -> bool:
        """Whether the server can know of a message without a record that its task has ended: in
        the run in which it was published, and for an hour over others that lost nothing.
        """
        server = self.world.server
        is_young = server.forward_ms - call.forward_ms < _REMEMBERED_MS
        return not call.is_lost and (is_young or server.n_runs == call.n_runs)

    def _is_sent_again(self, call: Call) -> bool:
        """Whether a member of a canvas may be published once more, though it has ended: the one
        before it was killed when it had sent it, and ran again (`docs/limits.rst`).
        """
        others = call.host.members if call.host is not None else []
        return any(len(one.bodies) > 1 for one in others if one is not call)

    def _check_alone(self, body: Body, other: Body) -> None:
        is_same = other.task_id == body.task_id
        is_beside = body.task in tasks.PLACED and (other.task, other.place) == (
            body.task,
            body.place,
        )
        if not (is_same or is_beside):
            return
        if self._losses or any(self.indexes.is_declared_dead(x.worker) for x in (body, other)):
            return
        if other.began_ms <= self.released_ms:
            # No lease was valid, and an operator said that nobody runs anything.
            return
        what = f"id {body.task_id}" if is_same else f"object {body.place}"
        raise Fault(f"two live bodies of {what}: {other} and {body}")

    # What is promised at each moment.

    def look(self) -> None:
        """After each step."""
        if not (self.world.climate.kinds or self.world.is_resting):
            self._check_waiting()
        if self.world.climate.kinds <= _CALM:
            self._check_idle()
        try:
            self._look()
        finally:
            self._buried_by.clear()
        if unlisted := self.indexes.unlisted():
            raise Fault(f"nobody looks into {unlisted}")
        wrong = self.places.look(self._sight.states)
        if wrong:
            raise Fault(wrong)

    def _look(self) -> None:
        before, self._sight = self._sight, self.indexes.look()
        sight = self._sight
        for name, state in sight.workers.items():
            # What a worker believes changes without a command.
            if state == "dead" or (state == "suspected" and sight is not before):
                self._check_belief(name, state)
        if sight is before:
            return
        if sight.faults:
            raise Fault(f"indexes: {sight.faults}")
        for task_id, n_losses in sight.losses.items():
            if before.losses.get(task_id) != n_losses:
                self._check_losses(task_id, int(n_losses))
        self._look_at_canvases()
        self._note_ends(before.states.keys() - sight.states.keys())
        self._note_lives(sight.states.keys() - before.states.keys())
        for task_id, state in sight.states.items():
            was = before.states.get(task_id)
            if state == "dead" and was != "dead":
                self._check_burial(task_id, was)

    def _note_ends(self, gone: set[str]) -> None:
        """Note whose records have *gone*."""
        for task_id in gone:
            self._attempts.pop(task_id, None)
        for call in self.calls.values():
            if call.is_under_way and not self._is_alive(call.task_id):
                call.is_second = False
            # The record of an id is no plain task's that never began.
            is_its_own = bool(call.bodies) or (call.is_accepted and call.name != "plain")
            if is_its_own and not call.ids.isdisjoint(gone):
                call.closed_ms = call.closed_ms or self.now_ms

    def _note_lives(self, new: set[str]) -> None:
        """Note whose call finds its id alive: a forgotten message may bring it back."""
        for call in self.calls.values():
            if call.is_under_way and not call.may_be_second and call.task_id in new:
                message = self.indexes.record(call.task_id).get("message", "")
                call.may_be_second = f'\\"{call.nonce}\\"' not in message

    def _check_belief(self, name: str, state: str) -> None:
        events = self.world.events
        for host in self.world.hosts:
            # One whose connection is cut hears of it at once, if it moves.
            is_told = host.is_up and host.has_heard(events.cut_ms)
            # A step of a second looks like a second (`docs/limits.rst`).
            if is_told and host.surely_holds(name, events.unnoticed_seconds):
                raise Fault(f"{name} is {state}, and surely holds its lease")

    def _check_losses(self, task_id: str, n_losses: int) -> None:
        """A death is counted once, and nothing else is counted as one."""
        calls = [one for one in self.calls.values() if one.task_id == task_id]
        if task_id.startswith("h"):
            # Nobody published it: a late claim of what somebody made up begins an attempt.
            return
        if not self.world.climate.kinds.isdisjoint(_DEADLY - _COUNTED - {"stop"}):
            return
        if any(call.plan in (*_GUILTY, *_LONG) or "brief" in call.name for call in calls):
            # These may be lost otherwise: a brief one by the time that goes by beside it.
            return
        # Whose heartbeat had no turn for as long as its lease is declared dead, too.
        lapsed = {name for name in map(self._worker_of, self.world.hosts) if name}
        deaths = self._kills[task_id] + len(
            {body.worker for call in calls for body in call.bodies} & lapsed
        )
        # After two such deaths it is a suspect, and all but the first may be charged to it.
        if self._beside[task_id] > 2:
            deaths += self._beside[task_id] - 1
        if n_losses > deaths:
            raise Fault(f"{task_id} has {n_losses} losses, and {deaths} deaths")

    def _worker_of(self, host: Any) -> str:
        """The id under which a worker that lives was declared dead; empty for others."""
        name = "" if host.identity is None or not host.is_up else str(host.identity.id)
        return name if name and self.indexes.is_declared_dead(name) else ""

    def _look_at_canvases(self) -> None:
        states = self._sight.states
        for task_id in self._waiting_since.keys() - states.keys():
            self._check_canvas(task_id)
        waiting = [task_id for task_id, state in states.items() if state == "replaced"]
        since = self._waiting_since
        self._waiting_since = {one: since.get(one, self.now_ms) for one in waiting}
        dead = {task_id for task_id, state in states.items() if state == "dead"}
        self._waiting_for_dead = {one for one in waiting if dead and self._waits_for(one, dead)}

    def _check_canvas(self, task_id: str) -> None:
        """Who waits for a canvas has a day for it."""
        waited_ms = self.now_ms - self._waiting_since[task_id]
        calls = [one for one in self.calls.values() if one.task_id == task_id and one.bodies]
        if waited_ms > _LONG_MS and task_id in self._waiting_for_dead:
            # An operator had so long to replay the member.
            self.excuse(task_id)
        if self._losses or waited_ms > _LONG_MS or any(one.is_excused for one in calls):
            return
        if not any(one.has_ended for one in calls):
            raise Fault(f"{task_id} is called off under its canvas")

    def _check_waiting(self) -> None:
        """Nothing waits for long behind what a worker runs, while nothing goes wrong; but a plain
        task whose ETA it waited for in the worker, as Celery has it.
        """
        before, self._fetched = self._fetched, {}
        for host in self.world.hosts:
            for request in host.unbegun() if host.is_up else ():
                if request.eta:
                    continue
                tag = request.message.delivery_tag
                since = self._fetched[tag] = before.get(tag, host.n_turns)
                if host.n_turns - since > _TURNS:
                    raise Fault(f"{request.id} waits behind what {host.name} runs")

    def _check_idle(self) -> None:
        """No message waits for long while a worker is idle that could take it."""
        before, self._idle = self._idle, {}
        for host in self.world.hosts:
            if not host.is_idle:
                continue
            since, last, message = before.get(host, (host.n_turns, -1, b""))
            if last != host.n_turns:
                waited_for, message = message, host.next_message()
                if not message:
                    continue
                # Otherwise the message before this one was taken meanwhile: the main process may
                # bury one after the other, and each time another has come.
                since = since if message == waited_for else host.n_turns
            if host.n_turns - since > _TURNS // 2:
                raise Fault(f"{host.name} is idle, and {host.waits_for_it()} waits")
            self._idle[host] = since, host.n_turns, message

    def _check_burial(self, task_id: str, was: str | None) -> None:
        """Who ran beside a poison is not buried for it, nor anybody by another's message."""
        for call in self.calls.values():
            if call.task_id == task_id:
                call.is_buried = call.is_buried or call.began_ms is not None
        record = self.indexes.record(task_id)
        if record["reason"] == "unprocessable" and not self._losses:
            self._check_message(task_id, was, record)
        if not self.world.climate.kinds.isdisjoint(_DEADLY):
            return
        calls = [one for one in self.calls.values() if one.task_id == task_id]
        if any(call.name == "plain" for call in calls):
            # Nobody knows whether it ran: each death of a worker that held its message is its own.
            return
        is_guilty = any(
            call.plan in _GUILTY or (call.plan in _LONG and "brief" in call.name) for call in calls
        )
        if record["reason"] == "lost" and not is_guilty:
            raise Fault(f"{task_id} is dead of {record.get('history')}, and is innocent")

    def _check_message(self, task_id: str, was: str | None, record: dict[str, str]) -> None:
        if was is None:
            calls = [one for one in self.calls.values() if one.task_id == task_id]
            # What has no record of its own is sent again as it was, and its letter discarded.
            is_replayed = any(one.replays and one.name == "plain" for one in calls)
            has_ended = all(one.closed_ms is not None and self._is_known(one) for one in calls)
            if calls and not is_replayed and has_ended:
                raise Fault(f"{task_id} is buried, after it had ended")
        elif was == "queued" and record["epoch"] not in self._buried_by[task_id]:
            raise Fault(f"{task_id} is buried by a message that is not its own")

    def _waits_for(self, task_id: str, dead: set[str]) -> bool:
        """Whether a task waits for its canvas, and that for one of the *dead*, until an operator
        replays or discards it.
        """
        record = self.indexes.record(task_id)
        members = json.loads(record.get("members") or "[]")
        return record.get("waiting_for") == "canvas" and not dead.isdisjoint(members)

    # What is promised in the end.

    @property
    def n_suicides(self) -> int:
        """How many bodies have killed their process."""
        return sum(body.is_suicide for body in self.bodies)

    def is_at_rest(self) -> bool:
        return not any(body.is_live for body in self.bodies) and not self.what_is_left()

    def what_is_left(self) -> list[str]:
        up = [host for host in self.world.hosts if host.is_up and host.is_ready]
        workers = {host.identity.id for host in up if host.identity is not None}
        hashes = {host.step.unacked_name for host in up}
        return self.indexes.left(workers, hashes, has_lost=self._losses > 0)

    def look_at_rest(self) -> None:
        """What was accepted has run to an end, or was called off, buried, or changed nothing."""
        self.look()
        wrong = self.world.orders.check_results() or self.world.naming.check_runs()
        if wrong:
            raise Fault(wrong)
        dead = {name for name, state in self._sight.states.items() if state == "dead"}
        for call in self.calls.values():
            if not call.is_accepted or call.is_excused or call.may_be_second:
                continue
            if call.has_ended or call.is_buried or call.task_id in dead:
                continue
            if call.name == "plain" and (call.bodies or self.world.climate.kinds):
                continue
            if self._waits_for(call.task_id, dead):
                continue
            raise Fault(f"{call} was accepted, and has never ended")
