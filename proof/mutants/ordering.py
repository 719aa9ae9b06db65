"""The mutants of order in the package's Python: what is done too early, too late, or not at all."""

from __future__ import annotations

from proof.mutants.python import Change, Mutant, drop, move, swap

__all__ = ["MUTANTS"]

_ENDS = "tests/integration/ends/"
_OBJECTS = "tests/integration/objects/"
_LEDGER = "tests/ledger/"
_UNIT = "tests/unit/"

#: What a fault is, how it is made, and the tests that may see it.
_Row = tuple[str, Change, tuple[str, ...]]

#: By the path in the package, and the function there.
_ATTEMPT: dict[str, dict[str, list[_Row]]] = {
    "attempt/execution.py": {
        "_attempted": [
            (
                "who stands in line runs its body all the same",
                drop("if attempt.is_closed:"),
                (_OBJECTS + "test_places_in_line.py",),
            ),
            (
                "another has the object, and that is not minded",
                drop("if holder == NOT_OWN:"),
                (_OBJECTS + "test_unique_tasks.py",),
            ),
        ],
        "_executed": [
            (
                "what the attempt has published waits for a pass",
                drop("if attempt.unsent is not None:"),
                (),
            ),
        ],
    },
    "attempt/conclusion.py": {
        "conclude": [
            (
                "an attempt that goes on keeps its object",
                drop("if attempt.is_closed or attempt.is_replaced:"),
                (),
            ),
            (
                "the chord is not told by a second attempt",
                drop("if claim.attempt > 1 and"),
                ("tests/integration/test_canvas.py",),
            ),
            (
                "who is refused at the settlement keeps its object, and tells nobody",
                drop("if isinstance(answer, answers.Fenced | answers.Gone) and"),
                ("tests/integration/test_zombies.py",),
            ),
        ],
        "no_outcome": [
            (
                "the object is left after the loss was counted",
                move("leave(delivery.task, attempt)", behind="answer = "),
                (),
            ),
            ("a retry without a stored outcome is lost, too", drop("if attempt.is_closed:"), ()),
        ],
    },
    "attempt/fencing.py": {
        "guarded.run": [
            (
                "nobody asks after the body whether the attempt counts",
                drop("_raise_if_taken(None)"),
                ("tests/integration/test_zombies.py",),
            ),
            (
                "it is asked before the body, and not after it",
                move("_raise_if_taken(None)", before="try:"),
                ("tests/integration/test_zombies.py",),
            ),
            (
                "a failure is stored, whoever has the task by now",
                drop("_raise_if_taken(exc)"),
                ("tests/integration/test_zombies.py",),
            ),
        ],
    },
    "attempt/claiming.py": {
        "claimed_early": [
            (
                "an early claim of long ago counts",
                drop("if clock.now() - asked_at >"),
                (_UNIT + "test_claiming.py",),
            ),
        ],
        "_turned_away": [
            (
                "what is turned away and was never recorded has no record",
                drop("if isinstance(answer, answers.Absent):"),
                (),
            ),
        ],
        "_without_attempt": [
            (
                "what a worker that is dead was given is acknowledged",
                drop("if isinstance(answer, answers.NoLease):"),
                (),
            ),
        ],
    },
    "attempt/object_lock.py": {
        "take": [
            (
                "the claim does not say which object it has",
                drop("if holder is None:"),
                (_OBJECTS + "test_unique_tasks.py",),
            ),
        ],
        "_take_place": [
            (
                "an attempt that stands in line counts as running",
                drop("attempt.is_closed = True"),
                (_OBJECTS + "test_places_in_line.py",),
            ),
        ],
    },
    "attempt/replacement.py": {
        "bequeathing.replaced": [
            (
                "the canvas is published before the id is left to it",
                drop("_bequeath(task, attempt, canvas)"),
                (),
            ),
        ],
    },
    "attempt/time_limits.py": {
        "Uninterrupted.__exit__": [
            (
                "a limit that came too late is let through before it is dropped",
                swap("_drop_pending()", "signal.pthread_sigmask(signal.SIG_UNBLOCK"),
                (_ENDS + "test_limits.py",),
            ),
        ],
        "is_touched": [
            (
                "a touch is told to the ledger, and not to the attempt",
                drop("attempt.deadline = touched_at + seconds"),
                ("tests/integration/test_stuck.py",),
            ),
        ],
    },
}
_PUBLISHING: dict[str, dict[str, list[_Row]]] = {
    "publishing/recorder.py": {
        "RecordingProducer.publish": [
            (
                "a retry is sent while its attempt still runs",
                drop("if publication.attempt is not None:"),
                (),
            ),
            (
                "it is sent, and never recorded",
                move("try:\n    return self._producer", before="if not publication.record("),
                (),
            ),
        ],
    },
    "publishing/publication.py": {
        "Publication._record": [
            (
                "the stamp is made before the generation is known",
                move("self.headers[HEADER] =", before="while True:"),
                (_LEDGER + "test_senders.py", _LEDGER + "test_generations.py"),
            ),
            (
                "a sender counts on before it was answered",
                move("ledger.senders.answered(self.epoch)", before="while True:"),
                (),
            ),
        ],
        "Publication._may_send": [
            (
                "an attempt that has published itself again is settled, too",
                drop("if self.attempt is not None:"),
                (),
            ),
        ],
    },
    "publishing/resending.py": {
        "send_stored": [
            (
                "what could not be sent is left as if it had been",
                drop("_leave(ledger, task_id, answer"),
                (),
            ),
        ],
    },
}
_RESULTS: dict[str, dict[str, list[_Row]]] = {
    "results/backend.py": {
        "PatientBackend.mark_as_done": [
            (
                "a call is answered with a unique task whose success is stored",
                drop("if store_result:"),
                (_OBJECTS + "test_unique_calls.py",),
            ),
        ],
        "PatientBackend._settled_with": [
            (
                "an attempt that is settled with its result counts as running",
                drop("attempt.is_closed = attempt.is_settled = True", nth=2),
                (),
            ),
            (
                "an attempt that is refused stores its result by itself",
                drop("if isinstance(answer, answers.Fenced):"),
                ("tests/integration/test_zombies.py",),
            ),
        ],
        "PatientBackend.mark_as_failure": [
            (
                "errbacks are called before the failure is stored",
                move("self._store(_marked", behind="if call_errbacks and"),
                (_ENDS + "test_failure.py",),
            ),
        ],
        "PatientBackend._store": [
            (
                "an outcome is stored late, whoever has the task by then",
                drop("if not is_current("),
                ("tests/integration/outages/test_results_away.py",),
            ),
        ],
    },
}
_WORKER: dict[str, dict[str, list[_Row]]] = {
    "worker/heartbeat.py": {
        "Heartbeat._beat": [
            (
                "a lease counts from the answer, and not from the question",
                move("sent_at = clock.now()", behind="beat = self._renew()"),
                (),
            ),
            (
                "a claim that was stopped is not acknowledged",
                drop("self._workers.acknowledge(claim)"),
                (),
            ),
            ("a worker that was declared dead holds its lease", drop("process.lost()"), ()),
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
                (),
            ),
        ],
        "Heartbeat._run": [
            (
                "a connection that was cut leaves the lease as sure as it was",
                drop("self._process.doubt()", nth=1),
                (),
            ),
            (
                "a ledger that does not answer leaves the lease as sure as it was",
                drop("self._process.doubt()", nth=2),
                (),
            ),
        ],
        "Heartbeat._register": [
            (
                "the lease counts before the orders are known",
                swap("self._process.obey(", "self._process.renewed("),
                (),
            ),
        ],
    },
    "worker/early_claims.py": {
        "EarlyClaims.forget": [
            (
                "what is dropped with the connection is under way for ever",
                drop("early.give_up()"),
                (_UNIT + "test_claiming.py",),
            ),
            (
                "an early claim that was dropped is not remembered",
                drop("self._watched[early.request.token] = early"),
                (_UNIT + "test_claiming.py",),
            ),
        ],
        "EarlyClaims.__call__": [
            (
                "an early claim that is under way is known to nobody",
                drop("self._watched = {"),
                ("tests/integration/test_early_claims.py",),
            ),
        ],
    },
    "worker/consumer_step.py": {
        "ConsumerStep.stop": [
            (
                "early claims are not forgotten with the connection",
                drop("if step.claims.early is not None:"),
                (),
            ),
        ],
    },
    "worker/pool_stop.py": {
        "PostponedStop.__call__": [
            (
                "a stop that comes too early is forgotten",
                drop("self._is_asked = True"),
                (_UNIT + "test_pool_stops.py",),
            ),
        ],
        "PostponedStop.begin": [
            (
                "a stop is put off for ever",
                drop("self._may_stop = True"),
                (_UNIT + "test_pool_stops.py",),
            ),
        ],
    },
    "worker/running_claims.py": {
        "RunningClaims.stop": [
            (
                "what is taken from a worker is stored by it all the same",
                drop("request.reliable_is_taken = True"),
                ("tests/integration/test_stuck.py",),
            ),
        ],
    },
    "worker/lost_child.py": {
        "end_lost": [
            (
                "the message of a lost child goes behind the others",
                drop("note(request.message, GOES_FIRST, True)"),
                (_ENDS + "test_loss.py", "tests/integration/test_shutdowns.py"),
            ),
            (
                "nobody is told of a burial that a child's death has brought",
                drop("if isinstance(answer, answers.Spent):"),
                (),
            ),
        ],
    },
    "worker/worker_step.py": {
        "WorkerStep._deregister": [
            (
                "what was acknowledged is not removed by a worker that ends",
                drop("unacked.catch_up()"),
                ("tests/integration/test_unacked_hashes.py",),
            ),
        ],
    },
    "worker/openings.py": {
        "Openings.end": [
            (
                "an opening that was told is told again for ever",
                drop("self._noted = None"),
                ("tests/integration/test_deadly_messages.py",),
            ),
        ],
    },
}
_RECOVERY: dict[str, dict[str, list[_Row]]] = {
    "recovery/dead_workers.py": {
        "DeadWorkers.recover": [
            (
                "messages go back before the claims are lost",
                move(
                    "for claim, _ in claims[:batch]:", behind="if unacked is not None and entries:"
                ),
                (),
            ),
            ("a worker is never forgotten", drop("self.ledger.workers.deregister("), ()),
            (
                "nobody is blamed for a message that kills who opens it",
                drop("if lease.verdict.may_be_opening:"),
                (),
            ),
        ],
        "DeadWorkers.recover_ownerless": [
            (
                "what is in a hash that nobody owns stays there",
                drop("if entries:"),
                ("tests/integration/test_unacked_hashes.py",),
            ),
        ],
    },
    "recovery/returns.py": {
        "Returns._give_back": [
            ("the message of a task that is over goes back to its queue", drop("if is_over("), ()),
        ],
        "Returns._bury": [
            (
                "a plain message is thrown away before it is buried",
                swap("self._ledger.bury_message(", "unacked.discard(entry.tag)"),
                (),
            ),
        ],
    },
    "recovery/losses.py": {
        "Losses.lose": [
            (
                "a loss is counted before anybody looks for a stored success",
                move("if record is not None and is_current and", behind="answer = "),
                ("tests/integration/test_lives.py",),
            ),
        ],
        "Losses._tell": [
            (
                "nobody is told of a burial that a worker's death has brought",
                drop("try_to_announce("),
                (),
            ),
        ],
    },
    "recovery/revocations.py": {
        "call_off_task": [
            (
                "the record goes before the revocation is stored",
                move("if record.state is not State.RUNNING:", behind="answer = "),
                (_UNIT + "test_called_off.py",),
            ),
        ],
    },
    "recovery/retention.py": {
        "Retention._discard": [
            (
                "it is asked too late of which groups the letters were",
                move("members = self._ledger.groups", behind="for task_id, buried_ms, reason in"),
                ("tests/integration/sweeps/test_retention.py",),
            ),
        ],
    },
    "recovery/overdue.py": {
        "Overdue._look_at_due": [
            (
                "what can wait is not put off",
                drop("self.ledger.postpone_all(self._later)"),
                ("tests/integration/sweeps/test_looks.py",),
            ),
        ],
    },
}
_BROKER: dict[str, dict[str, list[_Row]]] = {
    "broker/qos.py": {
        "QoS.restore_unacked_once": [
            (
                "claims are released after their messages went back",
                move("unacked.worker.before_leaving()", behind="for tag in reversed(tags):"),
                (_LEDGER + "test_room_of_a_channel.py",),
            ),
        ],
        "QoS.reject": [
            (
                "what is rejected for good stays in the unacked hash",
                drop("unacked.remove(delivery_tag)"),
                (),
            ),
        ],
    },
    "broker/worker_unacked.py": {
        "WorkerUnacked.take": [
            (
                "what was popped and not filed is forgotten",
                drop("if popped is not None:", nth=2),
                (_LEDGER + "test_room.py",),
            ),
            (
                "acknowledgements are forgotten before they were taken",
                move(
                    "with self._lock:\n    self._unremoved.difference_update",
                    before="try:\n    reply",
                ),
                (_LEDGER + "test_room.py",),
            ),
        ],
        "WorkerUnacked.catch_up": [
            (
                "what is put back is forgotten first",
                move("unfiled.pop()", before="self.run(self._put_back"),
                (_LEDGER + "test_room.py",),
            ),
            (
                "what could not be removed is not removed later",
                drop("self._unremoved |= tags"),
                (_LEDGER + "test_room.py", _LEDGER + "test_room_of_a_channel.py"),
            ),
        ],
        "WorkerUnacked.reconcile": [
            (
                "the list that the broker has lost is not made again",
                drop("if self._namespace:"),
                (_LEDGER + "test_room.py", "tests/integration/recovery/test_forgotten_rooms.py"),
            ),
        ],
    },
    "broker/taking.py": {
        "Taking.ask": [
            (
                "what is answered beside a take is not heard",
                drop("beside.hear(answer)"),
                (_LEDGER + "test_room.py",),
            ),
        ],
    },
}
_LEDGER_PYTHON: dict[str, dict[str, list[_Row]]] = {
    "ledger/caller.py": {
        "Caller._patiently": [
            (
                "a call that is sent again does not say so",
                drop("is_repeated = True"),
                (_LEDGER + "test_repeats.py", _LEDGER + "test_caller.py"),
            ),
        ],
        "Caller.run_all.run": [
            (
                "an error among several answers passes for an answer",
                drop("if isinstance(found[-1], Exception):"),
                (_LEDGER + "test_caller.py",),
            ),
        ],
    },
    "ledger/senders.py": {
        "Senders.new_epoch": [
            (
                "a fork goes on with the senders of its parent",
                drop("if self._pid != os.getpid():"),
                (_LEDGER + "test_senders.py",),
            ),
        ],
    },
    "ledger/lock_release.py": {
        "run_freeing": [
            (
                "nobody is told who is next",
                drop("if is_over and on_next is not None"),
                (_LEDGER + "test_places.py",),
            ),
        ],
        "call_freeing_lock": [
            (
                "who is told of another object asks with the same again",
                drop("object_key, has_line, next_up ="),
                (_LEDGER + "test_lock_release.py",),
            ),
        ],
    },
    "context.py": {
        "WorkerProcess.orders_now": [
            ("orders are read once and for all", drop("if version != self._asked_for:"), ()),
        ],
        "WorkerProcess.obey": [
            ("children do not hear that there are other orders", drop("self._told["), ()),
        ],
    },
}

MUTANTS = {
    row[0]: Mutant(row[0], path, function, *row[1:])
    for table in (_ATTEMPT, _PUBLISHING, _RESULTS, _WORKER, _RECOVERY, _BROKER, _LEDGER_PYTHON)
    for path, functions in table.items()
    for function, rows in functions.items()
    for row in rows
}
