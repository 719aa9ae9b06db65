"""Commands of the pages, run in the tests' own process, which imports Celery only once."""

from __future__ import annotations

import re
import shlex
from typing import Any

from click.testing import Result

from tests.integration.commands import invoke

__all__ = ["inline", "run"]

_INLINE = re.compile(r"``(celery -A proj [^`]+)``")


def inline(page: str) -> list[str]:
    """The commands that stand in the sentences of a page, each once, in their order."""
    found = (" ".join(command.split()) for command in _INLINE.findall(page))
    return list(dict.fromkeys(found))


def run(command: str, app: Any, *, known: dict[str, str] | None = None) -> Result:
    """Run a ``celery -A proj reliable …`` of a page with an app of this process.

    `known` says what its words in capitals stand for.
    """
    words = [(known or {}).get(word, word) for word in shlex.split(command)]
    assert words[:4] == ["celery", "-A", "proj", "reliable"], command
    assert words[4] != "metrics" or "--help" in words, f"{command} serves until it is ended"
    return invoke(app, *words[4:])
