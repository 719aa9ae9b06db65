"""The model keeps the promises in every small world, and each of its rules is needed for that."""

from __future__ import annotations

import ast
import importlib
import pkgutil
from collections.abc import Callable
from pathlib import Path

import pytest

from celery_reliable.ledger.scripts import names
from proof import model
from proof.model import RULES
from tests.proof.scopes import ABLATIONS, SCOPES, without
from tests.proof.worlds import Violated, explore

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
