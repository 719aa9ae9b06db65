"""Of the order in what runs, publishes and stores."""

from __future__ import annotations

from proof.mutants.python import Table, drop, move, swap

__all__ = ["TABLE"]

TABLE: Table = {
    "attempt/execution.py": {
        "_attempted": [
            (
                "who stands in line gives way, as if there were none",
                drop("if attempt.is_closed:"),
                ("tests/promises/test_line_in_order.py",),
            ),
            (
                "another has the object, and that is not minded",
                drop("if holder == NOT_OWN:"),
                ("tests/integration/objects/test_conflicts.py",),
            ),
        ],
        "_executed": [
            (
                "what the attempt has published waits for a pass",
                drop("if attempt.unsent is not None:"),
                (
                    "tests/promises/test_never_two.py::test_retries_at_once_run_in_order_and_never_twice",
                    "tests/integration/ends/test_success.py",
                ),
            ),
        ],
        "guarded.run": [
            (
                "nobody asks after the body whether the attempt counts",
                drop("_raise_if_taken(None)"),
                ("tests/unit/test_claiming.py",),
            ),
            (
                "it is asked before the body, and not after it",
                move("_raise_if_taken(None)", before="try:"),
                ("tests/unit/test_claiming.py",),
            ),
            (
                "a body begins, whoever has the task by now",
                drop("_raise_if_late()"),
                ("tests/unit/test_claiming.py",),
            ),
            (
                "a failure is stored, whoever has the task by now",
                drop("_raise_if_taken(exc)"),
                ("tests/unit/test_claiming.py",),
            ),
        ],
        "Uninterrupted.__exit__": [
            (
                "a limit that came too late is let through before it is dropped",
                swap("_drop_pending()", "signal.pthread_sigmask(signal.SIG_UNBLOCK"),
                (
                    "tests/integration/ends/test_failure.py::test_a_soft_limit_that_comes_too_late_for_the_body_changes_nothing",
                    "tests/integration/ends/test_failure.py",
                ),
            ),
        ],
        "is_touched": [
            (
                "a touch is told to the ledger, and not to the attempt",
                drop("attempt.deadline = touched_at + seconds"),
                ("tests/integration/test_zombies.py",),
            ),
        ],
    },
    "attempt/conclusion.py": {
        "conclude": [
            (
                "an attempt that goes on keeps its object",
                drop("if attempt.is_closed or attempt.is_replaced:"),
                (
                    "tests/integration/objects/test_conflicts.py::test_an_attempt_that_goes_on_leaves_its_object_to_who_comes_next",
                ),
            ),
            (
                "the chord is not told once more",
                drop("if is_told_again and"),
                (
                    "tests/integration/outages/test_publishers.py::test_a_chord_goes_on_when_the_reply_to_its_last_member_is_lost",
                    "tests/integration/ends/test_failure.py::test_a_chord_survives_a_killed_header",
                    "tests/integration/test_canvas.py",
                ),
            ),
            (
                "who is refused at the settlement keeps its object, and tells nobody",
                drop("if isinstance(answer, answers.Fenced | answers.Gone) and"),
                (
                    "tests/integration/test_telling.py::test_every_refusal_is_told",
                    "tests/integration/ends/test_revocation.py",
                    "tests/promises/test_late_changes_nothing.py",
                ),
            ),
        ],
        "no_outcome": [
            (
                "the object is left after the loss was counted",
                move("leave_object(delivery.task, attempt)", behind="answer = "),
                (),
            ),
        ],
    },
    "attempt/claiming.py": {
        "claimed_early": [
            (
                "an early claim of long ago counts",
                drop("if early is None or clock.now() - early.asked_at >"),
                ("tests/unit/test_claiming.py",),
            ),
        ],
        "_turned_away": [
            (
                "what is turned away and was never recorded has no record",
                drop("if isinstance(answer, answers.Absent):"),
                ("tests/integration/test_named_workers.py",),
            ),
        ],
        "_without_attempt": [
            (
                "what a worker that is dead was given is acknowledged",
                drop("if isinstance(answer, answers.NoLease):"),
                ("tests/unit/test_claiming.py",),
            ),
        ],
        "take_object": [
            (
                "the claim does not say which object it has",
                drop("attempt.claim = replace("),
                (
                    "tests/integration/objects/test_conflicts.py::test_an_attempt_that_goes_on_leaves_its_object_to_who_comes_next",
                ),
            ),
            (
                "an attempt that stands in line counts as running",
                drop("attempt.is_closed = True"),
                ("tests/promises/test_line_in_order.py",),
            ),
        ],
    },
    "attempt/replacement.py": {
        "bequeathing.replaced": [
            (
                "the canvas is published before the id is left to it",
                drop("_bequeath(task, attempt, canvas)"),
                (
                    "tests/integration/ends/test_success.py::test_a_canvas_runs_whole_also_in_the_place_of_its_host",
                ),
            ),
        ],
    },
    "publishing/publication.py": {
        "Publication.publish": [
            (
                "a retry is sent while its attempt still runs",
                drop("if self.attempt is not None:"),
                (
                    "tests/integration/ends/test_success.py::test_a_retry_waits_until_its_body_has_unwound",
                ),
            ),
            (
                "it is sent, and never recorded",
                move("return self._send(", before="is_recorded = "),
                (
                    "tests/promises/test_never_two.py::test_one_id_is_one_task_while_it_lives_and_the_same_message_twice_runs_once",
                ),
            ),
            (
                "what is recorded and could not be withdrawn is recorded again",
                drop("if self._is_left():"),
                ("tests/integration/outages/test_publishers.py",),
            ),
        ],
        "Publication._record": [
            (
                "the stamp is made before the generation is known",
                move("self._stamp(", before="while True:"),
                ("tests/ledger/test_generations.py",),
            ),
            (
                "a sender counts on before it was answered",
                move("ledger.senders.answered(self.epoch)", before="while True:"),
                (),
            ),
        ],
        "Publication.record": [
            (
                "an attempt that has published itself again is settled, too",
                drop("if self.attempt is not None:"),
                (
                    "tests/promises/test_never_two.py::test_retries_at_once_run_in_order_and_never_twice",
                ),
            ),
        ],
    },
    "publishing/sending.py": {
        "send_stored": [
            (
                "what could not be sent is left as if it had been",
                drop("ledger.postpone(Due(task_id"),
                (),
            ),
        ],
    },
    "results/backend.py": {
        "PatientBackend.mark_as_done": [
            (
                "a call is answered with a unique task whose success is stored",
                drop("if store_result:"),
                (
                    "tests/integration/objects/test_conflicts.py::test_a_call_after_an_outcome_is_another_task_though_a_hook_still_has_the_object",
                ),
            ),
        ],
        "PatientBackend._settled_with": [
            (
                "an attempt that is settled with its result counts as running",
                drop("attempt.is_closed = attempt.is_settled = True", nth=2),
                ("tests/unit/test_claiming.py",),
            ),
            (
                "an attempt that is refused stores its result by itself",
                drop("if isinstance(answer, answers.Fenced):"),
                ("tests/unit/test_claiming.py",),
            ),
        ],
        "PatientBackend.mark_as_failure": [
            (
                "errbacks are called before the failure is stored",
                move("self._store(_marked", behind="if call_errbacks and"),
                ("tests/unit/test_claiming.py",),
            ),
        ],
        "PatientBackend._store": [
            (
                "an outcome is stored late, whoever has the task by then",
                drop("if not is_current("),
                ("tests/unit/test_claiming.py",),
            ),
        ],
    },
}
