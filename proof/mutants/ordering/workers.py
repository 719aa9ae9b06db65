"""Of the order in a worker and its broker."""

from __future__ import annotations

from proof.mutants.python import Table, drop, move, swap

__all__ = ["TABLE"]

TABLE: Table = {
    "worker/heartbeat.py": {
        "Heartbeat._beat": [
            (
                "a lease counts from the answer, and not from the question",
                move("sent_at = clock.now()", behind="beat = self._renew()"),
                ("tests/unit/test_beats.py",),
            ),
            (
                "a claim that was stopped is not acknowledged",
                drop("self._workers.acknowledge(claim)"),
                ("tests/unit/test_beats.py",),
            ),
            (
                "a worker that was declared dead holds its lease",
                drop("process.lost()"),
                ("tests/unit/test_beats.py",),
            ),
            (
                "the lease counts before the new connection is known",
                move(
                    "process.renewed(sent_at + config.lease_seconds)",
                    before="if self.connection.is_another:",
                ),
                (),
            ),
            (
                "a worker that was forgotten registers under its old id",
                drop("process.reborn()"),
                ("tests/unit/test_beats.py",),
            ),
        ],
        "Heartbeat._run": [
            (
                "a connection that was cut leaves the lease as sure as it was",
                drop("self._process.doubt()", nth=1),
                ("tests/unit/test_beats.py",),
            ),
            (
                "a ledger that does not answer leaves the lease as sure as it was",
                drop("self._process.doubt()", nth=2),
                ("tests/unit/test_beats.py",),
            ),
        ],
        "Heartbeat._register": [
            (
                "the lease counts before the orders are known",
                swap("self._process.obey(", "self._process.renewed("),
                ("tests/unit/test_beats.py",),
            ),
        ],
    },
    "worker/arrivals.py": {
        "Arrivals.forget": [
            (
                "what is dropped with the connection is under way for ever",
                drop("early.give_up()"),
                ("tests/unit/test_claiming.py",),
            ),
            (
                "an early claim that was dropped is not remembered",
                drop("self._watched[early.token] = early"),
                ("tests/unit/test_claiming.py",),
            ),
        ],
        "Arrivals.next": [
            (
                "an early claim that is under way is known to nobody",
                drop("self._watched = {"),
                (
                    "tests/integration/test_early_claims.py::test_what_is_received_slowly_is_nobody_elses_meanwhile",
                ),
            ),
        ],
    },
    "worker/consumer_step.py": {
        "ConsumerStep.stop": [
            (
                "early claims are not forgotten with the connection",
                drop("if step.arrivals is not None:"),
                ("tests/unit/test_claiming.py",),
            ),
        ],
    },
    "worker/running_claims.py": {
        "PoolStop.__call__": [
            (
                "a stop that comes too early is forgotten",
                drop("self._is_asked = True"),
                ("tests/unit/test_beats.py",),
            ),
        ],
        "PoolStop.begin": [
            (
                "a stop is put off for ever",
                drop("self._may_stop = True"),
                ("tests/unit/test_beats.py",),
            ),
        ],
        "RunningClaims.stop": [
            (
                "what is taken from a worker is stored by it all the same",
                drop("request.reliable_is_taken = True"),
                (
                    "tests/promises/test_late_changes_nothing.py::test_a_taken_attempt_cannot_be_stopped_and_changes_nothing",
                ),
            ),
        ],
    },
    "worker/claims.py": {
        "end_lost": [
            (
                "nobody is told of a burial that a child's death has brought",
                drop("if isinstance(answer, answers.Spent):"),
                (
                    "tests/integration/test_telling.py::test_each_event_that_has_a_signal_is_told",
                    "tests/integration/ends/test_failure.py",
                ),
            ),
        ],
    },
    "worker/worker_step.py": {
        "WorkerStep._deregister": [
            (
                "what was acknowledged is not removed by a worker that ends",
                drop("unacked.catch_up()"),
                (
                    "tests/integration/test_unacked_hashes.py::test_what_could_not_be_acknowledged_is_before_the_worker_ends",
                ),
            ),
        ],
    },
    "worker/unprocessable.py": {
        "Openings.end": [
            (
                "an opening that was told is told again for ever",
                drop("self._noted = None"),
                ("tests/unit/test_beats.py",),
            ),
        ],
    },
    "broker/qos.py": {
        "QoS.restore_unacked_once": [
            (
                "claims are released after their messages went back",
                move("unacked.worker.before_leaving()", behind="for tag in reversed(tags):"),
                ("tests/ledger/test_room.py",),
            ),
        ],
    },
    "broker/worker_unacked.py": {
        "WorkerUnacked._put_back_unfiled": [
            (
                "what is put back is forgotten first",
                drop("self.put_back_later(key, delivery)"),
                ("tests/ledger/test_room.py",),
            ),
        ],
        "WorkerUnacked.take": [
            (
                "what was popped and not filed is forgotten",
                drop("if popped is not None:", nth=2),
                ("tests/ledger/test_room.py",),
            ),
            (
                "acknowledgements are forgotten before they were taken",
                move(
                    "with self._lock:\n    self._unremoved.difference_update",
                    before="try:\n    reply",
                ),
                ("tests/ledger/test_room.py",),
            ),
        ],
        "WorkerUnacked.catch_up": [
            (
                "what could not be removed is not removed later",
                drop("self._unremoved |= tags"),
                ("tests/ledger/test_room.py",),
            ),
        ],
        "WorkerUnacked.reconcile": [
            (
                "the list that the broker has lost is not made again",
                drop("if self._namespace:"),
                ("tests/ledger/test_room.py",),
            ),
        ],
    },
}
