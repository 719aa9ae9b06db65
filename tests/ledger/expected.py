"""What each transition answers on each state of a task, and what it leaves."""

from __future__ import annotations

__all__ = ["ANSWERS", "EXPECTED"]

# "reply" alone: nothing at all changes. "reply > state": the task is in that state afterwards.
# `mine` is my attempt 1, which is over except in `running`; where I had none it is an attempt 0.
# Behind each answer are the states in which it is given, each state once.
ANSWERS = {
    "record": {
        "recorded > queued": "absent settled called_off spent buried",
        "exists": (
            "queued parked running held overtaken lost suspected stopping retried standing waiting"
        ),
    },
    "record_as_heir": {
        "recorded > queued": "absent settled called_off waiting spent buried",
        "exists": "queued parked running held overtaken lost suspected stopping retried standing",
    },
    "record_as_attempt": {
        "fenced": (
            "absent settled queued parked held overtaken lost suspected stopping called_off "
            "retried waiting spent buried standing"
        ),
        "recorded > queued": "running",
    },
    "withdraw": {
        "gone": "absent settled",
        "withdrawn > absent": "queued parked",
        "kept": (
            "running held overtaken lost suspected stopping called_off retried standing waiting "
            "spent buried"
        ),
    },
    "claim": {
        "ended": "absent settled called_off",
        "claimed > running": "queued lost",
        "parked": "parked standing",
        "held": "running held overtaken",
        "alone > queued": "suspected",
        "held > queued": "stopping",
        "stale": "retried waiting",
        "dead": "spent buried",
    },
    "claim_struck": {
        "ended": "absent settled called_off",
        "struck > parked": "queued lost",
        "parked": "parked standing",
        "held": "running held overtaken",
        "alone > queued": "suspected",
        "held > queued": "stopping",
        "stale": "retried waiting",
        "dead": "spent buried",
    },
    "claim_foreign_struck": {
        "struck > parked": "absent settled",
        "stale": "queued parked lost suspected stopping retried standing waiting",
        "held": "running held overtaken",
        "held > queued": "called_off",
        "dead": "spent buried",
    },
    "stop": {
        "changed": (
            "absent settled queued parked lost suspected stopping called_off retried standing "
            "waiting spent buried running held overtaken"
        ),
    },
    "claim_foreign": {
        "claimed > running": "absent settled",
        "stale": "queued parked lost suspected stopping retried standing waiting",
        "held": "running held overtaken",
        "held > queued": "called_off",
        "dead": "spent buried",
    },
    "reserve": {
        "free > queued": "queued lost suspected",
        "free": (
            "absent settled parked running held overtaken stopping called_off retried standing "
            "waiting "
            "spent buried"
        ),
    },
    "touch": {
        "gone": "absent settled",
        "fenced": (
            "queued parked held overtaken lost suspected stopping called_off retried standing "
            "waiting "
            "spent buried"
        ),
        "touched > running": "running",
    },
    "settle": {
        "gone": "absent settled",
        "fenced": (
            "queued parked held overtaken lost suspected stopping called_off retried standing "
            "waiting "
            "spent buried"
        ),
        "settled > absent": "running",
    },
    "store": {
        "gone": "absent settled",
        "fenced": (
            "queued parked held overtaken lost suspected stopping called_off retried standing "
            "waiting "
            "spent buried"
        ),
        "stored > running": "running",
    },
    "store_retry": {
        "gone": "absent settled",
        "fenced": "queued parked running held overtaken called_off standing waiting spent buried",
        "stored > queued": "lost suspected stopping retried",
    },
    "store_buried": {
        "gone": "absent settled",
        "fenced": (
            "queued parked running held overtaken lost suspected stopping called_off retried "
            "standing waiting"
        ),
        "stored > dead": "spent buried",
    },
    "replace": {
        "gone": "absent settled",
        "fenced": (
            "queued parked held overtaken lost suspected stopping called_off retried standing "
            "spent buried"
        ),
        "waiting > waiting": "running",
        "waiting": "waiting",
    },
    "lose": {
        "gone": "absent settled",
        "fenced": "queued parked held overtaken called_off retried standing waiting",
        "queued > queued": "running",
        "queued": "lost suspected stopping",
        "buried": "spent buried",
    },
    "lose_beyond": {
        "gone": "absent settled",
        "fenced": "queued parked held overtaken called_off retried standing waiting",
        "buried > dead": "running",
        # The loss was counted once, against the budget as it was then.
        "queued": "lost suspected stopping",
        "buried": "spent buried",
    },
    "release": {
        "gone": "absent settled",
        "fenced": "queued parked held overtaken called_off retried standing waiting spent buried",
        "released > queued": "running",
        "released": "lost suspected stopping",
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
        "fenced": "parked running held overtaken called_off retried standing waiting spent buried",
    },
    "bury": {
        "gone": "absent settled called_off",
        "fenced": "queued parked held overtaken lost suspected stopping retried standing waiting",
        "buried > dead": "running",
        "buried": "spent buried",
    },
    "bury_message": {
        # Whether it is a late copy, the generation has to tell.
        "unrecorded": "absent settled called_off",
        "buried > dead": "queued lost suspected stopping",
        "fenced": "parked running held overtaken standing",
        "stale": "retried waiting",
        "buried": "spent buried",
    },
    "bury_foreign": {
        "buried > dead": "absent settled called_off",
        "stale": (
            "queued parked running held overtaken lost suspected stopping retried standing "
            "waiting spent "
            "buried"
        ),
    },
    "cancel": {
        "gone": "absent settled called_off",
        "cancelled > absent": "queued parked lost suspected retried standing waiting",
        "running": "running held overtaken",
        "cancelled > waiting": "stopping",
        "dead": "spent buried",
    },
    "revoke": {
        "gone": "absent settled called_off",
        "cancelled > absent": "queued parked lost suspected retried standing waiting",
        "running > running": "running held overtaken",
        "cancelled > waiting": "stopping",
        "dead": "spent buried",
    },
    "cancel_first": {
        "gone": "absent settled called_off",
        "cancelled > absent": "queued parked lost suspected standing",
        "running": "running held overtaken",
        "cancelled > waiting": "stopping",
        # The id is the canvas's now, and its attempt numbers must go on growing.
        "stale": "retried waiting",
        "dead": "spent buried",
    },
    "replay": {
        "absent": "absent settled",
        "not_dead": (
            "queued parked running held overtaken lost suspected stopping called_off retried "
            "standing "
            "waiting"
        ),
        "replayed > queued": "spent buried",
    },
    "discard": {
        "absent": "absent settled called_off",
        "not_dead": (
            "queued parked running held overtaken lost suspected stopping retried standing waiting"
        ),
        "discarded > absent": "spent buried",
    },
    "announce": {
        "changed": (
            "absent settled queued parked running held overtaken lost suspected stopping "
            "called_off retried standing waiting"
        ),
        "announced > dead": "spent",
        # Celery itself stored the failure of an attempt that reported one: nothing is owed.
        "announced": "buried",
    },
    "resend": {
        "changed": "absent settled running held overtaken called_off waiting spent buried",
        "send > queued": "queued parked lost suspected retried standing",
        "held": "stopping",
    },
    "divert": {
        "absent": "absent settled",
        "diverted > queued": "queued lost suspected stopping",
        "changed": (
            "parked running held overtaken called_off retried standing waiting spent buried"
        ),
    },
    "park": {
        "changed": "absent settled running held overtaken called_off waiting spent buried",
        "parked > parked": "queued parked lost suspected stopping retried standing",
    },
    "move": {
        "absent": "absent settled",
        "moved > queued": "queued lost suspected stopping",
        "moved > parked": "parked standing",
        "changed": "running held overtaken called_off retried waiting spent buried",
    },
    "move_away": {
        "absent": "absent settled",
        "moved > queued": "running",
        "changed": "queued parked held overtaken called_off lost suspected stopping retried"
        " standing waiting spent buried",
    },
    "wake": {
        "changed": "absent settled queued parked running held overtaken called_off lost suspected"
        " stopping retried standing waiting spent buried",
    },
    "postpone": {
        "changed": "absent settled running held overtaken buried",
        "postponed > queued": "queued lost suspected stopping retried",
        "postponed > parked": "parked standing",
        "postponed > waiting": "called_off waiting",
        "postponed > dead": "spent",
    },
    "take_place": {
        "fenced": (
            "absent settled queued parked held overtaken lost suspected stopping called_off "
            "retried waiting spent buried"
        ),
        # As a repeated call.
        "standing": "standing",
        "placed > running": "running",
    },
    "stand": {
        "fenced": (
            "absent settled queued parked held overtaken lost suspected stopping called_off "
            "retried standing waiting spent buried"
        ),
        "standing > parked": "running",
    },
    "step_up": {
        "fenced": (
            "absent settled queued parked running held overtaken lost suspected stopping "
            "called_off retried waiting spent buried"
        ),
        "send > queued": "standing",
    },
}

#: The answer by transition and state.
EXPECTED = {
    step: {state: cell for cell, states in answers.items() for state in states.split()}
    for step, answers in ANSWERS.items()
}
