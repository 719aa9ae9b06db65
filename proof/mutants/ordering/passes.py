"""Of the order in a pass, and in the calls of the ledger."""

from __future__ import annotations

from proof.mutants.python import Table, drop, move, swap

__all__ = ["TABLE"]

TABLE: Table = {
    "recovery/dead_workers.py": {
        "DeadWorkers.recover": [
            (
                "messages go back before the claims are lost",
                move(
                    "for claim, _ in claims[:batch]:", behind="if unacked is not None and entries:"
                ),
                (),
            ),
            (
                "a worker is never forgotten",
                drop("self.ledger.workers.deregister("),
                (),
            ),
            (
                "nobody is blamed for a message that kills who opens it",
                drop("if lease.verdict.may_be_opening:"),
                (
                    "tests/integration/test_deadly_messages.py::test_it_is_dead_lettered_and_what_was_fetched_with_it_is_not_charged",
                ),
            ),
        ],
        "DeadWorkers.recover_ownerless": [
            (
                "what is in a hash that nobody owns stays there",
                drop("if entries:"),
                (
                    "tests/integration/test_unacked_hashes.py::test_an_unacked_hash_that_no_lease_names_is_emptied",
                ),
            ),
        ],
    },
    "recovery/returns.py": {
        "Returns._give_back": [
            (
                "the message of a task that is over goes back to its queue",
                drop("if is_over("),
                (),
            ),
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
                (
                    "tests/integration/test_lives.py::test_an_attempt_that_stored_its_success_is_settled_whatever_its_clock",
                ),
            ),
        ],
        "Losses._tell": [
            (
                "nobody is told of a burial that a worker's death has brought",
                drop("try_to_announce("),
                (
                    "tests/integration/test_telling.py::test_every_burial_is_told",
                    "tests/integration/recovery/test_dead_workers.py",
                ),
            ),
        ],
    },
    "recovery/revocations.py": {
        "call_off_task": [
            (
                "the record goes before the revocation is stored",
                move("if record.state is not State.RUNNING:", behind="answer = "),
                ("tests/unit/test_called_off.py",),
            ),
        ],
    },
    "recovery/retention.py": {
        "Retention._discard": [
            (
                "it is asked too late of which groups the letters were",
                move("members = self._ledger.groups", behind="for task_id, buried_ms, reason in"),
                (
                    "tests/integration/sweeps/test_retention.py::test_a_pass_knows_the_groups_of_those_that_stay",
                ),
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
    "ledger/caller.py": {
        "Caller._patiently": [
            (
                "a call that is sent again does not say so",
                drop("is_repeated = True"),
                ("tests/ledger/test_repeats.py", "tests/ledger/test_caller.py"),
            ),
        ],
        "Caller.run_all.run": [
            (
                "an error among several answers passes for an answer",
                drop("if isinstance(found[-1], Exception):"),
                ("tests/ledger/test_caller.py",),
            ),
        ],
    },
    "ledger/senders.py": {
        "Senders.new_epoch": [
            (
                "a fork goes on with the senders of its parent",
                drop("if self._pid != os.getpid():"),
                ("tests/ledger/test_senders.py",),
            ),
        ],
    },
    "ledger/lock_release.py": {
        "run_freeing": [
            (
                "nobody is told who is next",
                drop("if is_over and on_next is not None"),
                ("tests/ledger/test_places.py",),
            ),
        ],
        "call_freeing_lock": [
            (
                "who is told of another object asks with the same again",
                drop("object_key, has_line, next_up ="),
                ("tests/ledger/test_lock_release.py",),
            ),
        ],
    },
    "context.py": {
        "WorkerProcess.orders_now": [
            (
                "orders are read once and for all",
                drop("if version != self._asked_for:"),
                (),
            ),
        ],
        "WorkerProcess.obey": [
            (
                "children do not hear that there are other orders",
                drop("self._told["),
                (),
            ),
        ],
    },
}
