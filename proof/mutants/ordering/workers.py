"""Of the order in a worker and its broker."""

from __future__ import annotations

from proof.mutants.python import Table, drop, move, swap

__all__ = ["TABLE"]

TABLE: Table = {
    "worker/heartbeat.py": {
        "Heartbeat._beat": [
            (
                "a lease counts from the answer, and not from the question",
                move("sent_at = clock.now()", behind="beat = self._workers.heartbeat("),
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
    "worker/running_claims.py": {
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
    "worker/shutdown.py": {
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
        "Shutdown._deregister": [
            (
                "what was acknowledged is not removed by a worker that ends",
                drop("unacked.catch_up()"),
                (
                    "tests/integration/test_unacked_hashes.py::test_what_could_not_be_acknowledged_is_before_the_worker_ends",
                ),
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
    "broker/waiting.py": {
        "WaitingChannel.stop_waiting": [
            (
                "what has come stays in the inbox of a worker that ends",
                drop("if was_waiting and"),
                ("tests/ledger/test_room.py",),
            ),
        ],
        "WaitingChannel._note": [
            (
                "nothing is taken that a wait has brought",
                drop("if came is not None"),
                ("tests/ledger/test_room.py",),
            ),
        ],
    },
    "broker/worker_unacked.py": {
        "WorkerUnacked.take": [
            (
                "acknowledgements are forgotten before they were taken",
                move(
                    "with self._lock:\n    self._unremoved.difference_update",
                    before="try:",
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
