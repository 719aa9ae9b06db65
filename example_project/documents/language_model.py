"""Stands for the models that this project calls: one behind an API outside, which allows so many
calls a second and refuses all others, and one that runs on machines of its own with a GPU.
"""

from __future__ import annotations

import fcntl
import json
import time
from pathlib import Path

from django.conf import settings

from documents.readability import sentences

__all__ = ["RATE", "TooManyCalls", "embed", "load", "summarize"]

#: So many calls the API allows within any second.
_ALLOWED = 5
#: A little less, as two tasks may begin closer to each other than their rate says.
RATE = "4/s"


class TooManyCalls(Exception):
    """There were as many calls within a second as the API allows."""


def summarize(text: str) -> str:
    """Ask the API for a summary; raises TooManyCalls."""
    summary = next(iter(sentences(text)), "")
    folder = Path(settings.DOCUMENT_MODELS)
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "calls.jsonl").open("a+") as calls:
        fcntl.flock(calls, fcntl.LOCK_EX)
        calls.seek(0)
        now = time.time()
        if sum(now - json.loads(line)["at"] < 1 for line in calls) >= _ALLOWED:
            raise TooManyCalls(f"the API allows {_ALLOWED} calls a second")
        calls.write(json.dumps({"at": now, "said": summary}) + "\n")
    return summary


def load(machine: str, version: str) -> None:
    """Load a version of the model into the memory of a machine, which takes its time."""
    folder = Path(settings.DOCUMENT_MODELS, "loaded", machine)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / version).touch()


def embed(text: str) -> list[int]:
    """Return where a text stands among others: here, how many words it has of each length."""
    lengths = [len(word) for word in text.split()]
    return [lengths.count(length) for length in range(1, 9)]
