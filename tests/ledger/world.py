"""Publishers, workers, zombies, operators and sweepers, acting in any order on a real server."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import count
from typing import TypeVar

import redis
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    invariant,
    precondition,
    rule,
)

from celery_reliable.leases import Verdict
from celery_reliable.ledger import Ledger, answers
from celery_reliable.ledger.answers.base import Answer
from celery_reliable.model import Claim, Reason, State, TaskRef
from tests.ledger.scene import ABSENT, LOOK_MS, Published, Scene

T = TypeVar("T")

IDS = ("a", "b")
MAX_LOSSES = 1

#: Mostly the latest, which makes stories and not only noise, and else anything from before.
PICKS = st.one_of(st.just(0), st.integers(0, 9))
#: Mostly one task, so that what happens happens to the same one.
TASK_IDS = st.sampled_from(["a", "a", "a", "b"])
#: A call whose reply was lost is sent again.
TIMES = st.sampled_from([1, 1, 2])
DUE_MS = st.sampled_from([0, LOOK_MS])

#: What is done with messages and attempts, the commonest more often.
STEPS = ["publish"] * 2 + ["deliver"] * 6 + ["settle"] * 4 + ["lose"] * 2 + ["sweep"] * 2
STEPS += [
    "take",
    "acknowledge",
    "retry",
    "wait",
    "replace",
    "inherit",
    "inherit",
    "release",
    "bury",
]
STEPS += ["replay", "replay", "late"]

#: Answers by which an attempt hears that it is over, and the state of its task from then on.
ENDINGS = {
    answers.Settled: ABSENT,
    answers.Recorded: "queued",
    answers.Waiting: "waiting",
    answers.Queued: "queued",
    answers.Released: "queued",
    answers.Buried: "dead",
    answers.Spent: "dead",
}


class World(RuleBasedStateMachine):
    """What each actor was told, and what must follow from it: a second, plain account of the truth.

    Messages stay in `messages` when they were delivered, so that each can come again at any time;
    claims stay in `claims` when they are over, so that every attempt can report late.
    """

    def __init__(self, ledger: Ledger, client: redis.Redis) -> None:
        super().__init__()
        client.flushdb()
        self.scene = Scene(ledger, client)
        self.ledger = ledger
        self.numbers = count(1)
        # The first record of all names the generation.
        self.scene.publish("first")
        ledger.revoke("first")
        self.workers = ["worker of old", "another of old"]
        for worker in self.workers:
            self.scene.start_worker(worker)
        self.messages: list[Published] = []
        self.claims: list[Claim] = []
        self.dead_workers: set[str] = set()
        self.states = dict.fromkeys(IDS, ABSENT)
        self.running: dict[str, Claim] = {}
        self.attempts: Counter[str] = Counter()
        self.losses: Counter[str] = Counter()
        self.settled: set[Claim] = set()
        #: What ran in a worker that died, and has not ended or been published anew since.
        self.suspects: set[str] = set()
        #: How many deaths of their workers were charged to nobody, of each task.
        self.spared: Counter[str] = Counter()
        #: The claim that was made last.
        self.last_token: dict[str, str] = {}
        #: Publications that were answered, whatever the answer, and claims that were had.
        self.answered: list[Callable[[], Answer]] = []
        #: Attempts that were taken as stuck and of which their worker has not said that they ended.
        self.stopping: dict[str, Claim] = {}
        #: Tasks that have ended, and stay known for what of them is still to be stopped.
        self.called_off: set[str] = set()

    # One rule for what happens most: hypothesis leaves some rules out of each of its stories.
    @rule(
        do=st.sampled_from(STEPS),
        task_id=TASK_IDS,
        pick=PICKS,
        times=TIMES,
        due_in_ms=DUE_MS,
        flag=st.booleans(),
    )
    def act(self, do: str, task_id: str, pick: int, times: int, due_in_ms: int, flag: bool) -> None:
        """Publish, deliver, sweep, replay, or have an attempt report its end, in time or late."""
        messages = [message for message in self.messages if message.task.id == task_id]
        claims = [claim for claim in self.claims if claim.task_id == task_id]
        if do == "sweep":
            self._sweep()
        elif do == "replay":
            self._replay(task_id, times)
        elif do == "acknowledge":
            self._acknowledge(self.workers[flag])
        elif do == "late":
            self._call_late(pick)
        elif do == "publish" or not messages:
            self._publish(task_id, due_in_ms, flag, times)
        elif do == "deliver" or not claims:
            self._deliver(_pick(messages, pick), self.workers[flag], times)
        else:
            self._end_attempt(_pick(claims, pick), do, times, due_in_ms, flag)

    def _end_attempt(self, claim: Claim, how: str, times: int, due_in_ms: int, flag: bool) -> None:
        if how in ("retry", "wait"):
            self._retry(claim, due_in_ms, is_parked=flag, times=times, is_unrun=how == "wait")
        elif how == "settle":
            self._settle(claim, times)
        elif how == "lose":
            self._lose(claim, times, is_taken=flag)
        elif how == "take":
            self._take(claim, times)
        elif how == "inherit":
            self._inherit(claim)
        else:
            ends: dict[str, Callable[[Claim], Answer]] = {
                "replace": lambda one: self._replaced(one, due_in_ms),
                "release": lambda one: self.ledger.release(one, due_in_ms=due_in_ms),
                "bury": self.scene.bury,
            }
            self._try_to_end(claim, times, ends[how])

    @rule(task_id=TASK_IDS)
    def deliver_foreign(self, task_id: str) -> None:
        self._deliver(self.scene.foreign(task_id), self.workers[0], 1)

    @precondition(lambda self: self.messages and self.dead_workers)
    @rule(pick=PICKS, worker=PICKS)
    def deliver_to_zombie(self, pick: int, worker: int) -> None:
        zombie = _pick(sorted(self.dead_workers), worker)
        answer = self.scene.ask(_pick(self.messages, pick), zombie, content="as delivered")
        assert isinstance(answer, answers.NoLease | answers.Held | answers.Dead)

    # Operators.

    @precondition(lambda self: self.messages)
    @rule(pick=PICKS, how=st.sampled_from(["withdraw", "cancel", "expire", "discard"]))
    def end_unrun(self, pick: int, how: str) -> None:
        """One rule for all, since they end stories."""
        message = _pick(self.messages, pick)
        task_id = message.task.id
        state = self.states[task_id]
        ends: dict[str, tuple[Callable[[], Answer], type[Answer], tuple[str, ...]]] = {
            "withdraw": (
                lambda: self.ledger.withdraw(task_id, message.epoch),
                answers.Withdrawn,
                ("queued", "parked"),
            ),
            "cancel": (
                lambda: self.ledger.revoke(task_id),
                answers.Cancelled,
                ("queued", "parked", "waiting"),
            ),
            "expire": (
                lambda: self.ledger.cancel(task_id, epoch=message.epoch),
                answers.Cancelled,
                ("queued", "parked") if message.epoch else ("queued", "parked", "waiting"),
            ),
            "discard": (lambda: self.ledger.discard(task_id), answers.Discarded, ("dead",)),
        }
        call, reply, states = ends[how]
        if task_id in self.called_off and how in ("cancel", "expire"):
            self._let_go(task_id)
        elif type(call()) is reply:
            assert state in states
            assert how != "withdraw" or self.attempts[task_id] == 0
            self._end(task_id)
        else:
            assert how not in ("cancel", "discard") or state not in states

    @precondition(lambda self: self.messages)
    @rule(pick=PICKS)
    def bury_message(self, pick: int) -> None:
        """Any message is delivered to a worker that cannot run it."""
        message = _pick(self.messages, pick)
        task_id, record = message.task.id, self.ledger.find(message.task.id)
        answer = self.ledger.bury_message(
            task_id,
            Reason.UNPROCESSABLE,
            exception="",
            traceback="",
            message="raw",
            name=message.task.name,
            epoch=message.epoch,
            is_unproved=not message.generation,
        )
        if record is None or record.is_called_off:
            is_proved = bool(message.generation)
            assert type(answer) is (answers.Unrecorded if is_proved else answers.Buried)
        else:
            is_stale = record.epoch != message.epoch
            assert (isinstance(answer, answers.Stale)) is is_stale
            is_buried = isinstance(answer, answers.Buried)
            assert is_stale or is_buried is (self.states[task_id] in ("queued", "dead"))
        if isinstance(answer, answers.Buried):
            self.called_off.discard(task_id)
            self.states[task_id] = "dead"

    @rule(pick=PICKS)
    def kill_worker(self, pick: int) -> None:
        """A worker is declared dead, what it ran is lost, and another takes its place."""
        worker = _pick(self.workers, pick)
        ran = {i for i, claim in self.running.items() if claim.worker == worker}
        guilty = ran if len(ran) == 1 else ran & self.suspects
        assert len(guilty) <= 1, "two suspects in one worker"
        self.scene.kill_worker(worker)
        self.dead_workers.add(worker)
        self.workers.remove(worker)
        lease = self.scene.lease(worker)
        for claim, _ in self.ledger.workers.claims(worker).values():
            assert self._is_current(claim)
            assert lease.verdict.charges(claim.task_id) is (claim.task_id in guilty)
            assert lease.verdict.names_suspect is bool(guilty & self.suspects)
            self._lose(claim, times=2, is_taken=True, verdict=lease.verdict)
        assert self.ledger.workers.deregister(worker, in_unacked=0)
        self.workers.append(f"worker {next(self.numbers)}")
        self.scene.start_worker(self.workers[-1])

    # What must hold all the time.

    @invariant()
    def the_ledger_says_what_its_answers_said(self) -> None:
        for task_id in IDS:
            record = self.ledger.find(task_id)
            if record is not None and record.is_called_off:
                assert self.states[task_id] == ABSENT
                assert task_id in self.called_off
                assert record.attempt == self.attempts[task_id]
                continue
            assert task_id not in self.called_off
            assert (record.state.value if record else ABSENT) == self.states[task_id]
            if record is None:
                continue
            assert record.attempt == self.attempts[task_id]
            assert record.losses == self.losses[task_id]
            # Deaths that were charged to nobody are charged with the one that proves them.
            assert record.losses <= MAX_LOSSES or self.states[task_id] == "dead"
            if claim := self.running.get(task_id):
                assert (record.owner, record.token) == (claim.worker, claim.token)

    @invariant()
    def every_index_follows_from_the_records(self) -> None:
        assert self.scene.index_faults() == []

    # How it is done.

    def _message(self, task_id: str, attempt: int) -> Published:
        number = next(self.numbers)
        # Every second publication has a time to run.
        task = TaskRef(task_id, "app.work", time_to_run_ms=number % 2 * LOOK_MS)
        return Published(task, self.ledger.senders.new_epoch(attempt), self.ledger.generation)

    def _record(self, message: Published, times: int, record: Callable[[], Answer]) -> Answer:
        answer = self._repeat(times, record)
        self.ledger.senders.answered(message.epoch)
        self.answered.append(record)
        return answer

    def _call_late(self, pick: int) -> None:
        """A call comes once more, over a connection that was given up."""
        if not self.answered:
            return
        before = self.scene.snapshot()
        _pick(self.answered, pick)()
        assert self.scene.snapshot() == before

    def _repeat(self, times: int, call: Callable[[], Answer]) -> Answer:
        """Call, and call again; the answers must be the same."""
        first = call()
        for _ in range(times - 1):
            assert call() == first
        return first

    def _is_current(self, claim: Claim) -> bool:
        current = self.running.get(claim.task_id)
        return current is not None and current.token == claim.token

    def _published(self, task_id: str, message: Published, state: State) -> None:
        self.messages.append(message)
        self.called_off.discard(task_id)
        self.states[task_id] = state.value
        self._trust(task_id)

    def _deliver(self, message: Published, worker: str, times: int) -> None:
        task_id = message.task.id
        token = f"turn {next(self.numbers)}"
        answer = self._repeat(
            times, lambda: self.scene.ask(message, worker, token=token, content="as delivered")
        )
        beside = {i for i, claim in self.running.items() if claim.worker == worker}
        if isinstance(answer, answers.Alone):
            assert task_id in self.suspects
            assert beside & self.suspects
            return
        if not isinstance(answer, answers.Claimed):
            is_held = isinstance(answer, answers.Held) and task_id in self.stopping
            if is_held and self.states[task_id] == ABSENT:
                self._published(task_id, message, State.QUEUED)
            assert self.states[task_id] != "queued" or isinstance(answer, answers.Stale) or is_held
            assert (isinstance(answer, answers.Ended)) <= (self.states[task_id] == ABSENT)
            return
        self.called_off.discard(task_id)
        if self.states[task_id] == ABSENT:
            # A foreign message was recorded by this claim, and may come again like any other.
            self.messages.append(message)
        else:
            assert self.states[task_id] == "queued"
        assert task_id not in self.running, "two attempts at once"
        assert task_id not in self.stopping, "two attempts at once"
        assert task_id not in self.suspects or not beside & self.suspects, "two suspects at once"
        self.attempts[task_id] += 1
        attempt, losses = answer.attempt, answer.losses
        assert attempt == self.attempts[task_id]
        claim = Claim(task_id, attempt, worker, token, losses)
        self.claims.append(claim)
        if message.epoch:
            # A message from outside proves nothing of its task, and would begin it anew.
            self.answered.append(lambda: self.scene.ask(message, worker, token=token))
        self.last_token[task_id] = token
        self.running[task_id] = claim
        self.states[task_id] = "running"

    def _publish(self, task_id: str, due_in_ms: int, is_parked: bool, times: int) -> None:
        message = self._message(task_id, 0)
        state = State.PARKED if is_parked else State.QUEUED
        due_in_ms = 0 if is_parked else due_in_ms
        answer = self._record(
            message,
            times,
            lambda: self.scene.record(
                message.task, message.epoch, state=state, due_in_ms=due_in_ms
            ),
        )
        if self.states[task_id] not in (ABSENT, "dead"):
            assert isinstance(answer, answers.InUse)
            return
        assert isinstance(answer, answers.Recorded)
        if self.states[task_id] == "dead":
            self.losses[task_id] = 0
        self._published(task_id, message, state)

    def _replaced(self, claim: Claim, due_in_ms: int) -> Answer:
        self.ledger.bequeath(claim, heir=claim.token)
        return self.ledger.replace(claim, due_in_ms=due_in_ms)

    def _inherit(self, claim: Claim) -> None:
        """A canvas gets to its last member, in time or late."""
        message = self._message(claim.task_id, 0)
        answer = self._record(
            message,
            1,
            lambda: self.scene.record(message.task, message.epoch, heir=claim.token),
        )
        is_heir = self.states[claim.task_id] == "waiting" and (
            claim.attempt == self.attempts[claim.task_id]
            and claim.token == self.last_token[claim.task_id]
        )
        if is_heir or self.states[claim.task_id] in (ABSENT, "dead"):
            assert isinstance(answer, answers.Recorded)
            if self.states[claim.task_id] == "dead":
                self.losses[claim.task_id] = 0
            self._published(claim.task_id, message, State.QUEUED)
        else:
            assert isinstance(answer, answers.InUse)

    def _retry(
        self, claim: Claim, due_in_ms: int, is_parked: bool, times: int, is_unrun: bool
    ) -> None:
        """Publish its own id, after its body or before: then its number is the next one's."""
        message = self._message(claim.task_id, claim.attempt - is_unrun)
        state = State.PARKED if is_parked else State.QUEUED
        due_in_ms = 0 if is_parked else due_in_ms
        answer = self._record(
            message,
            times,
            lambda: self.scene.record(
                message.task,
                message.epoch,
                state=state,
                due_in_ms=due_in_ms,
                claim=claim,
                waits_for="object" if is_unrun else "",
            ),
        )
        if self._is_current(claim):
            assert isinstance(answer, answers.Recorded)
            self.attempts[claim.task_id] -= is_unrun
            del self.running[claim.task_id]
            self._published(claim.task_id, message, state)
        else:
            assert isinstance(answer, answers.NotCurrent)

    def _settle(self, claim: Claim, times: int) -> None:
        answer = self.ledger.settle(claim)
        if self._is_current(claim):
            assert isinstance(answer, answers.Settled)
            assert claim not in self.settled
            self.settled.add(claim)
            self._over(claim, answer)
        else:
            assert isinstance(answer, answers.Fenced | answers.Gone)
        if times == 2:
            assert not isinstance(self.ledger.settle(claim), answers.Settled)

    def _replay(self, task_id: str, times: int) -> None:
        message = self._message(task_id, self.attempts[task_id])
        answer = self._repeat(
            times,
            lambda: self.ledger.replay(
                task_id, epoch=message.epoch, message="replayed", due_in_ms=0
            ),
        )
        assert (isinstance(answer, answers.Replayed)) is (self.states[task_id] == "dead")
        if isinstance(answer, answers.Replayed):
            self.losses[task_id] = 0
            self._published(task_id, message, State.QUEUED)

    def _sweep(self) -> None:
        for due in self.ledger.due(10).dues:
            state = self.states[due.task_id]
            letter = self.ledger.dead_letter(due.task_id)
            if letter is not None:
                assert isinstance(
                    self.ledger.announced(due.task_id, letter.buried_ms), answers.Announced
                )
            elif due.task_id in self.called_off:
                if not self._let_go(due.task_id):
                    answer = self.ledger.postpone(due, due_in_ms=LOOK_MS)
                    assert isinstance(answer, answers.Postponed)
            elif state in ("queued", "parked"):
                answer = self.ledger.resend(due, due_in_ms=LOOK_MS)
                taken = self.stopping.get(due.task_id)
                if taken is not None and taken.worker in self.workers:
                    assert isinstance(answer, answers.Held)
                    assert isinstance(
                        self.ledger.postpone(due, due_in_ms=LOOK_MS), answers.Postponed
                    )
                    continue
                assert isinstance(answer, answers.Send)
                self.stopping.pop(due.task_id, None)
                self.states[due.task_id] = "queued"
                assert isinstance(self.ledger.resend(due, due_in_ms=LOOK_MS), answers.Changed)
            else:
                assert isinstance(self.ledger.postpone(due, due_in_ms=LOOK_MS), answers.Postponed)

    def _lose(
        self,
        claim: Claim,
        times: int,
        is_taken: bool,
        verdict: Verdict | None = None,
    ) -> None:
        is_current = self._is_current(claim)
        self._try_to_end(
            claim,
            times,
            lambda one: self.scene.lose(
                one,
                max_losses=MAX_LOSSES,
                is_taken=is_taken,
                verdict=verdict,
            ),
        )
        if is_current:
            task_id, spared = claim.task_id, self.spared[claim.task_id]
            is_death = verdict is not None
            is_counted = verdict is None or verdict.charges(task_id)
            is_suspect = verdict is not None and verdict.names_suspect
            if is_counted:
                self.losses[task_id] += max(1, spared) if is_death else 1
            if is_death:
                is_spared = not is_counted and not is_suspect
                self.spared[task_id] = min(spared, 1) if is_counted else spared + is_spared
                if is_suspect or self.spared[task_id] + self.losses[task_id] >= 2:
                    self.suspects.add(task_id)
            is_spent = self.losses[claim.task_id] > MAX_LOSSES
            assert (self.states[claim.task_id] == "dead") is is_spent

    def _take(self, claim: Claim, times: int) -> None:
        is_current = self._is_current(claim)
        self._try_to_end(claim, times, lambda one: self.scene.take(one, max_losses=MAX_LOSSES))
        if is_current:
            self.losses[claim.task_id] += 1
            self.stopping[claim.task_id] = claim

    def _acknowledge(self, worker: str) -> None:
        for claim in self.scene.beat(worker).claims(worker):
            assert isinstance(self.ledger.workers.acknowledge(claim), answers.Acknowledged)
            if self._is_stopping(claim):
                del self.stopping[claim.task_id]

    def _is_stopping(self, claim: Claim) -> bool:
        taken = self.stopping.get(claim.task_id)
        return taken is not None and taken.token == claim.token

    def _try_to_end(self, claim: Claim, times: int, end: Callable[[Claim], Answer]) -> None:
        """End an attempt, or one that is over: then nothing at all may change."""
        if self._is_current(claim):
            self._over(claim, self._repeat(times, lambda: end(claim)))
            return
        before = self.scene.snapshot()
        self._repeat(times, lambda: end(claim))
        assert self.scene.snapshot() == before

    def _over(self, claim: Claim, answer: Answer) -> None:
        del self.running[claim.task_id]
        self.states[claim.task_id] = ENDINGS[type(answer)]
        if isinstance(answer, answers.Settled):
            self._end(claim.task_id)
        elif isinstance(answer, answers.Waiting):
            self._trust(claim.task_id)

    def _trust(self, task_id: str) -> None:
        self.suspects.discard(task_id)
        del self.spared[task_id]

    def _end(self, task_id: str) -> None:
        """The record is gone: whoever publishes the id again begins anew."""
        self.states[task_id] = ABSENT
        self._trust(task_id)
        self.losses[task_id] = 0
        if task_id in self.stopping:
            # What still runs of it has its number.
            self.called_off.add(task_id)
        else:
            self.attempts[task_id] = 0

    def _let_go(self, task_id: str) -> bool:
        """Look at what was called off; False while it is still to be stopped."""
        record = self.ledger.find(task_id)
        assert record is not None
        assert record.is_called_off
        taken = self.stopping.get(task_id)
        assert (record.stopping_on or None) == (taken.worker if taken else None)
        if taken is not None:
            is_outlived = self.ledger.is_outlived(task_id, taken.worker)
            assert is_outlived is (taken.worker not in self.workers)
            if not is_outlived:
                return False
            del self.stopping[task_id]
        assert isinstance(self.ledger.let_go(task_id), answers.Cancelled)
        assert self.ledger.find(task_id) is None
        self.called_off.remove(task_id)
        self.attempts[task_id] = 0
        return True


def _pick(items: Sequence[T], number: int) -> T:
    """The latest first."""
    return items[-1 - number % len(items)]
