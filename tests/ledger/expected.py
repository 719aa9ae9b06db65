"""What each transition answers on each state of a task, and what it leaves."""

from __future__ import annotations

from tests.ledger.stages import STAGES

__all__ = ["ANSWERS", "EXPECTED"]

#: All states that the row does not name.
REST = ""

_NOT_CLAIMED = {
    "ended": "absent settled called_off",
    "parked": "parked standing",
    "held": "running held overtaken",
    "alone > queued": "suspected",
    "held > queued": "stopping",
    "stale": "retried waiting",
    "dead": "spent buried",
}
_STALE = {
    "held": "running held overtaken",
    "held > queued": "called_off",
    "dead": "spent buried",
    "stale": REST,
}

# "reply" alone: nothing at all changes. "reply > state": the task is in that state afterwards.
# `mine` is my attempt 1, which is over except in `running`; where I had none it is an attempt 0.
# Behind each answer are the states in which it is given, each state once.
ANSWERS = {
    "record": {"recorded > queued": "absent settled called_off spent buried", "exists": REST},
    "record_as_heir": {
        "recorded > queued": "absent settled called_off waiting spent buried",
        "exists": REST,
    },
    "record_as_attempt": {"recorded > queued": "running", "fenced": REST},
    "withdraw": {"gone": "absent settled", "withdrawn > absent": "queued parked", "kept": REST},
    "claim": {"claimed > running": "queued lost", **_NOT_CLAIMED},
    "claim_struck": {"struck > parked": "queued lost", **_NOT_CLAIMED},
    "claim_foreign_struck": {"struck > parked": "absent settled", **_STALE},
    "stop": {"changed": REST},
    "claim_foreign": {"claimed > running": "absent settled", **_STALE},
    "reserve": {"free > queued": "queued lost suspected", "free": REST},
    "touch": {"gone": "absent settled", "touched > running": "running", "fenced": REST},
    "settle": {"gone": "absent settled", "settled > absent": "running", "fenced": REST},
    "store": {"gone": "absent settled", "stored > running": "running", "fenced": REST},
    "store_retry": {
        "gone": "absent settled",
        "stored > queued": "lost suspected stopping retried",
        "fenced": REST,
    },
    "store_buried": {"gone": "absent settled", "stored > dead": "spent buried", "fenced": REST},
    "replace": {
        "gone": "absent settled",
        "waiting > waiting": "running",
        "waiting": "waiting",
        "fenced": REST,
    },
    "lose": {
        "gone": "absent settled",
        "queued > queued": "running",
        "queued": "lost suspected stopping",
        "buried": "spent buried",
        "fenced": REST,
    },
    "lose_beyond": {
        "gone": "absent settled",
        "buried > dead": "running",
        # The loss was counted once, against the budget as it was then.
        "queued": "lost suspected stopping",
        "buried": "spent buried",
        "fenced": REST,
    },
    "release": {
        "gone": "absent settled",
        "released > queued": "running",
        "released": "lost suspected stopping",
        "fenced": REST,
    },
    "open": {
        "opening > absent": "absent settled",
        "opening > queued": "queued lost stopping retried",
        "opening > parked": "parked standing",
        "opening > running": "running held overtaken",
        "alone > queued": "suspected",
        "opening > waiting": "called_off waiting",
        "dead": "spent buried",
    },
    "blame": {
        "gone": "absent settled",
        "queued > queued": "queued lost suspected stopping",
        "fenced": REST,
    },
    "bury": {
        "gone": "absent settled called_off",
        "buried > dead": "running",
        "buried": "spent buried",
        "fenced": REST,
    },
    "bury_message": {
        # Whether it is a late copy, the generation has to tell.
        "unrecorded": "absent settled called_off",
        "buried > dead": "queued lost suspected stopping",
        "stale": "retried waiting",
        "buried": "spent buried",
        "fenced": REST,
    },
    "bury_foreign": {"buried > dead": "absent settled called_off", "stale": REST},
    "cancel": {
        "gone": "absent settled called_off",
        "running": "running held overtaken",
        "cancelled > waiting": "stopping",
        "dead": "spent buried",
        "cancelled > absent": REST,
    },
    "revoke": {
        "gone": "absent settled called_off",
        "running > running": "running held overtaken",
        "cancelled > waiting": "stopping",
        "dead": "spent buried",
        "cancelled > absent": REST,
    },
    "cancel_first": {
        "gone": "absent settled called_off",
        "running": "running held overtaken",
        "cancelled > waiting": "stopping",
        # The id is the canvas's now, and its attempt numbers must go on growing.
        "stale": "retried waiting",
        "dead": "spent buried",
        "cancelled > absent": REST,
    },
    "replay": {"absent": "absent settled", "replayed > queued": "spent buried", "not_dead": REST},
    "discard": {
        "absent": "absent settled called_off",
        "discarded > absent": "spent buried",
        "not_dead": REST,
    },
    "announce": {
        "announced > dead": "spent",
        # Celery itself stored the failure of an attempt that reported one: nothing is owed.
        "announced": "buried",
        "changed": REST,
    },
    "resend": {
        "send > queued": "queued parked lost suspected retried standing",
        "held": "stopping",
        "changed": REST,
    },
    "divert": {
        "absent": "absent settled",
        "diverted > queued": "queued lost suspected stopping",
        "changed": REST,
    },
    "park": {
        "parked > parked": "queued parked lost suspected stopping retried standing",
        "changed": REST,
    },
    "move": {
        "absent": "absent settled",
        "moved > queued": "queued lost suspected stopping",
        "moved > parked": "parked standing",
        "changed": REST,
    },
    "move_away": {"absent": "absent settled", "moved > queued": "running", "changed": REST},
    "wake": {"changed": REST},
    "postpone": {
        "postponed > queued": "queued lost suspected stopping retried",
        "postponed > parked": "parked standing",
        "postponed > waiting": "called_off waiting",
        "postponed > dead": "spent",
        "changed": REST,
    },
    "take_place": {
        # As a repeated call.
        "standing": "standing",
        "placed > running": "running",
        "fenced": REST,
    },
    "stand": {"standing > parked": "running", "fenced": REST},
    "step_up": {"send > queued": "standing", "fenced": REST},
}


def _row(answers: dict[str, str]) -> dict[str, str]:
    named = " ".join(answers.values()).split()
    rest = " ".join(stage for stage in STAGES if stage not in named)
    return {state: cell for cell, states in answers.items() for state in (states or rest).split()}


#: The answer by transition and state.
EXPECTED = {step: _row(answers) for step, answers in ANSWERS.items()}
