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
        ],
    },
    "recovery/losses.py": {
        "Losses._tell": [
            (
                "nobody is told of a burial that a worker's death has brought",
                drop("try_to_announce("),
                (
                    "tests/integration/test_telling.py::test_each_event_that_has_a_signal_is_told",
                    "tests/promises/test_nothing_lost.py",
                ),
            ),
        ],
    },
    "recovery/returns.py": {
        "Returns._bury": [
            (
                "a plain message is thrown away before it is buried",
                swap("self.ledger.bury_message(", "unacked.discard(entry.tag)"),
                (),
            ),
        ],
    },
    "recovery/revocations.py": {
        "call_off_task": [
            (
                "the record goes before the revocation is stored",
                move("if record.state is not State.RUNNING:", behind="answer = "),
                ("tests/unit/test_claiming.py",),
            ),
        ],
    },
    "ledger/caller.py": {
        "Caller._repeated": [
            (
                "a call that is sent again does not say so",
                drop("is_repeated = True"),
                ("tests/ledger/test_state_machine.py", "tests/ledger/test_caller.py"),
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
    "ledger/publications.py": {
        "Senders.new_epoch": [
            (
                "a fork goes on with the senders of its parent",
                drop("if self._pid != os.getpid():"),
                ("tests/ledger/test_generations.py",),
            ),
        ],
    },
}
