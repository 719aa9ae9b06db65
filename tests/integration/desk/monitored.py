"""The dashboard and the alert rules of the documentation, read."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from tests.support.processes import REPOSITORY

FOLDER = REPOSITORY / "docs" / "monitoring"
BOARD: dict[str, Any] = json.loads((FOLDER / "grafana-dashboard.json").read_text("utf-8"))
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((FOLDER / "alerts.yml").read_text("utf-8"))["groups"]
    for rule in group["rules"]
]


TARGETS = [one for panel in BOARD["panels"] for one in panel.get("targets", ())]


def names(expressions: list[dict[str, Any]]) -> set[str]:
    """Every metric that rules or targets name."""
    return {name for one in expressions for name in re.findall(r"\breliable_\w+", one["expr"])}
