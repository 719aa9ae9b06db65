"""What a scenario stands on: a project on a Redis of its own, its workers, and its command line.

The tests of this folder know the package as its users do: they import nothing below its exports.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.integration.commands import Run
from tests.integration.conftest import *  # noqa: F403

Letters = Callable[..., dict[str, dict[str, Any]]]


@pytest.fixture
def letters(run: Run) -> Letters:
    """The dead letters by their ids, as `celery … reliable dead-letters list` has them."""

    def listed(**options: Any) -> dict[str, dict[str, Any]]:
        items = run("dead-letters", "list", "--json", **options).json["items"]
        return {one["task_id"]: one for one in items}

    return listed
