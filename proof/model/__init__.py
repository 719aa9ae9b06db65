"""The model of the ledger: what each call may answer, and what it leaves, by the promises.

It is plain Python and knows nothing of Redis, Celery or the rest of the package.  `answers` is all
of it: a function of a state and a call.  `proof.traces` replays on it what the
scripts really did; the tests explore all that can happen in small worlds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, cast

from proof.model.attempts import attempt_rules
from proof.model.endings import ending_rules
from proof.model.looks import look_rules
from proof.model.losses import loss_rules
from proof.model.objects import object_rules
from proof.model.operators import operator_rules
from proof.model.passes import pass_rules
from proof.model.publications import publication_rules
from proof.model.state import (
    ANY,
    REST,
    Call,
    Lock,
    Outcome,
    Reply,
    Task,
    Unknown,
    View,
    Worker,
    short,
)
from proof.model.workers import worker_rules

__all__ = [
    "ANY",
    "REST",
    "RULES",
    "Call",
    "Lock",
    "Outcome",
    "Reply",
    "Task",
    "Unknown",
    "Worker",
    "answers",
    "short",
]

Rule = Callable[[View], Reply]

#: What each script may do.
RULES: Mapping[str, Rule] = cast(
    "Mapping[str, Rule]",
    publication_rules()
    | attempt_rules()
    | loss_rules()
    | ending_rules()
    | look_rules()
    | worker_rules()
    | pass_rules()
    | object_rules()
    | operator_rules(),
)


def answers(
    state: Mapping[str, Any],
    call: Call,
    *,
    without: Iterable[str] = (),
    known: Callable[[str], bool] = lambda name: True,
) -> list[Outcome]:
    """Return what *call* may answer in *state*, and what each answer changes; mostly one.

    *without* names rules that are left out.  *known* tells whether what is not in *state* is known
    to be absent; raises Unknown where it is not.  Raises KeyError for a script without a rule.
    """
    rule, left_out = RULES[call.name], frozenset(without)
    found: list[Outcome] = []
    choices: list[int] | None = []
    while choices is not None:
        view = View(state, call, left_out, choices, known)
        found.append(Outcome(rule(view), view.changes))
        choices = _following(view.made, view.widths)
    return found


def _following(made: list[int], widths: list[int]) -> list[int] | None:
    """Return the next choices where a rule allows several, or None after the last ones."""
    for n in range(len(made) - 1, -1, -1):
        if made[n] + 1 < widths[n]:
            return [*made[:n], made[n] + 1]
    return None
