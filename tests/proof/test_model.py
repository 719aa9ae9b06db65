"""The model keeps the promises in every small world, and each of its rules is needed for that."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from celery_reliable.ledger.scripts import names
from proof import model
from proof.model import RULES
from tests.proof.worlds import Scope, Violated, explore

_BASE = frozenset({"publish", "send", "deliver", "settle", "resend", "declare"})

#: By name; all of them are explored by each run of the tests.
SCOPES: Mapping[str, Scope] = {
    "recovery": Scope(
        faults=2,
        does=_BASE
        | {"worker dies", "child dies", "duplicate", "lose reply", "delay", "late", "orphans"},
    ),
    "late": Scope(faults=2, does=_BASE | {"worker dies", "lose late", "delay", "late"}),
    "retries": Scope(
        faults=1, acts=2,
        does=_BASE | {"worker dies", "retry", "release", "duplicate", "become", "inherit"}
        | {"delay", "late", "withdraw"},
    ),
    "letters": Scope(
        faults=1, acts=2,
        does=_BASE | {"fail", "replay", "withdraw", "cancel", "duplicate", "worker dies"},
    ),
    "poison": Scope(poison="a", faults=0, does=_BASE | {"child dies", "worker dies", "start"}),
    "bystander": Scope(
        ids=("a", "b"), workers=("v",), slots=2, poison="a", faults=0, max_losses=1,
        does=_BASE | {"worker dies", "start"},
    ),
    "stuck": Scope(
        faults=2, time_to_run_ms=1, does=_BASE | {"stuck", "stop", "worker dies", "duplicate"},
    ),
    "objects": Scope(ids=("a", "b"), faults=1, object="o", does=_BASE | {"lock", "worker dies"}),
    "unique": Scope(
        ids=("a", "b"), faults=1, acts=1, max_losses=0, object="o", time_to_run_ms=1,
        does=_BASE | {"lock", "stuck", "stop", "delay", "late"},
    ),
    "places": Scope(ids=("a", "b", "c"), faults=0, object="o", does=_BASE | {"place", "early"}),
    "overtaking": Scope(
        ids=("a", "b", "c"), faults=2, max_losses=0, object="o", time_to_run_ms=1,
        does=frozenset({"publish", "send", "deliver", "place", "stuck", "declare"}),
    ),
    "let go": Scope(
        ids=("a", "b"), faults=2, acts=1, object="o", time_to_run_ms=1,
        does=_BASE - {"settle", "resend"} | {"place", "stuck", "stop", "cancel"},
    ),
    "called off": Scope(
        ids=("a", "b"), faults=0, acts=1, object="o", does=_BASE | {"place", "early", "cancel"},
    ),
    "canvas": Scope(faults=0, acts=2, does=_BASE | {"become", "inherit", "cancel"}),
    "leases": Scope(faults=1, acts=2, does=_BASE | {"beat", "worker dies"}),
    "runs": Scope(ids=("a", "b", "c"), workers=("v", "w", "x"), does=frozenset({"assign"})),
    "restart": Scope(faults=2, does=_BASE | {"restart", "duplicate"}),
    "strike": Scope(faults=1, acts=1, does=_BASE | {"strike", "worker dies"}),
}  # fmt: skip


def without(rule: str, scope: str) -> Scope:
    """Return a scope with a rule of the model left out."""
    return replace(SCOPES[scope], without=frozenset({rule}))


#: Each rule that can be left out, a scope in which that breaks a promise, and which.
ABLATIONS: Mapping[str, tuple[str, str]] = {
    "a sender numbers its publications": ("recovery", "run after its end"),
    "only the current attempt publishes itself again": ("retries", "run after its end"),
    "only the canvas's last member has the id": ("retries", "lost"),
    "an id that is there is not published again": ("letters", "twice at once"),
    "what is queued is looked at": ("recovery", "lost"),
    "only what nobody has claimed is taken back": ("retries", "called off as it ran"),
    "only a dead letter is replayed": ("letters", "run after its end"),
    "who ends a task frees its object": ("objects", "left"),
    "only the holder frees an object": ("let go", "changed by who is over"),
    "who frees a place lets in who stands first": ("places", "idle"),
    "an object that another has is not taken": ("objects", "changed by who is over"),
    "what is to be stopped has its object": ("unique", "overlap"),
    "an attempt frees what is its own": ("objects", "changed by who is over"),
    "an object has so many places": ("places", "changed by who is over"),
    "who came first has the place": ("overtaking", "out of turn"),
    "a restart begins a generation": ("restart", "lost"),
    "what was here and is absent has ended": ("recovery", "run after its end"),
    "a repeated claim is the same": ("recovery", "orphan"),
    "what runs is not claimed": ("recovery", "twice at once"),
    "only who is alive claims": ("recovery", "lost"),
    "a message of another publication is stale": ("retries", "run by another's message"),
    "what is to be stopped still runs": ("stuck", "twice at once"),
    "a worker runs one suspect at a time": ("bystander", "circle"),
    "what is struck waits": ("strike", "struck"),
    "a claim is noted at its worker": ("recovery", "lost"),
    "only the current attempt settles": ("recovery", "changed by who is over"),
    "only the current attempt is replaced": ("retries", "changed by who is over"),
    "a replacement is another publication": ("canvas", "lost"),
    "what is lost is looked at": ("recovery", "lost"),
    "only the current attempt is lost": ("late", "changed by who is over"),
    "losses are counted": ("poison", "circle"),
    "who is stuck is stopped first": ("stuck", "twice at once"),
    "only the current attempt is released": ("retries", "changed by who is over"),
    "only the current attempt is buried": ("letters", "changed by who is over"),
    "who calls off names the publication": ("letters", "lost"),
    "what runs is not called off": ("letters", "called off as it ran"),
    "who has renewed since is alive": ("leases", "declared as it beats"),
    "a lease is waited for": ("leases", "declared as it beats"),
    "who holds something is not forgotten": ("recovery", "lost"),
    "who stopped names the claim": ("stuck", "lost"),
    "who lives is waited for": ("stuck", "twice at once"),
    "each member of a run has its own worker": ("runs", "twice on one worker"),
}


pytestmark = pytest.mark.full

MODEL = Path(str(model.__file__)).parent


@pytest.mark.parametrize("name", sorted(SCOPES))
def test_every_world_keeps_what_is_promised(
    name: str, record_property: Callable[[str, object], None]
) -> None:
    states = explore(SCOPES[name])

    record_property("states explored", f"{name}: {states}")
    assert states > 10


@pytest.mark.parametrize("rule", sorted(ABLATIONS))
def test_a_rule_that_is_left_out_breaks_a_promise(rule: str) -> None:
    scope, what = ABLATIONS[rule]

    with pytest.raises(Violated) as found:
        explore(without(rule, scope))

    assert found.value.what == what, found.value.path


def test_each_rule_that_can_be_left_out_is() -> None:
    asked = {
        node.args[0].value
        for path in MODEL.glob("*.py")
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr == "holds"
        and isinstance(node.args[0], ast.Constant)
    }

    assert asked == set(ABLATIONS)


def test_the_model_has_a_rule_for_every_script() -> None:
    assert set(RULES) == set(names())


def test_the_model_knows_nothing_of_the_package() -> None:
    modules = [one.name for one in pkgutil.walk_packages([str(MODEL)], f"{model.__name__}.")]
    assert len(modules) > 8
    for name in modules:
        source = Path(str(importlib.import_module(name).__file__)).read_text("utf-8")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and str(node.module).startswith("celery_reliable"):
                assert str(node.module).startswith("proof.model"), name
