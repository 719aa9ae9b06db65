"""Which metrics and labels an expression of PromQL names, compared with those that there are."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import promql_parser
from prometheus_client.parser import text_string_to_metric_families

#: What Prometheus itself gives to all that it scrapes.
TARGET = frozenset({"job", "instance"})
#: What Grafana puts in place of its own names.
_GRAFANA = {"$__rate_interval": "5m", "$__range": "1h"}


def labels_in(text: str) -> dict[str, set[str]]:
    """The labels of each sample of a scrape, by its name."""
    found: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            found.setdefault(sample.name, set()).update(sample.labels)
    return found


def result_labels(text: str, known: Mapping[str, Iterable[str]]) -> set[str]:
    """The labels that the result of an expression may have.

    Fails where it names a metric that is not *known*, or a label that this metric has not, and
    where it is no PromQL.
    """
    for name, value in _GRAFANA.items():
        text = text.replace(name, value)
    assert not re.search(r"\$(?!job\b)", text), text
    return _labels(promql_parser.parse(text), known)


def _labels(expr: Any, known: Mapping[str, Iterable[str]]) -> set[str]:
    kind = type(expr).__name__
    if kind == "VectorSelector":
        assert expr.name in known, expr.name
        has = {*known[expr.name], *TARGET}
        named = {one.name for one in expr.matchers.matchers}
        assert named <= has, (expr.name, named - has)
        return has
    if kind == "MatrixSelector":
        return _labels(expr.vector_selector, known)
    if kind == "Call":
        inner = set().union(*(_labels(one, known) for one in expr.args))
        if expr.func.name == "histogram_quantile":
            assert "le" in inner, expr
            return inner - {"le"}
        return inner
    if kind == "AggregateExpr":
        inner = _labels(expr.expr, known)
        if expr.modifier is None:
            return inner if str(expr.op) == "topk" else set()
        assert "By" in str(expr.modifier.type), expr
        assert set(expr.modifier.labels) <= inner, (str(expr), inner)
        return set(expr.modifier.labels)
    if kind == "BinaryExpr":
        left, right = _labels(expr.lhs, known), _labels(expr.rhs, known)
        matching = expr.modifier.matching if expr.modifier is not None else None
        if matching is not None:
            assert set(matching.labels) <= left & right, expr
        return left
    if kind in ("ParenExpr", "UnaryExpr"):
        return _labels(expr.expr, known)
    assert kind in ("NumberLiteral", "StringLiteral"), kind
    return set()
