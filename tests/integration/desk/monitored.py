"""The dashboard and the alert rules of the documentation, read."""

from __future__ import annotations

import json
import re
from typing import Any

import yaml

from tests.support.processes import REPOSITORY

__all__ = ["BOARD", "FOLDER", "RULES", "expressions", "names"]

FOLDER = REPOSITORY / "docs" / "monitoring"
BOARD: dict[str, Any] = json.loads((FOLDER / "grafana-dashboard.json").read_text("utf-8"))
RULES: list[dict[str, Any]] = [
    rule
    for group in yaml.safe_load((FOLDER / "alerts.yml").read_text("utf-8"))["groups"]
    for rule in group["rules"]
]


def expressions() -> list[str]:
    """Every expression of both."""
    targets = [one for panel in BOARD["panels"] for one in panel.get("targets", ())]
    return [one["expr"] for one in (*RULES, *targets)]


def names() -> set[str]:
    """Every metric that is named in one."""
    return {name for one in expressions() for name in re.findall(r"\breliable_\w+", one)}
