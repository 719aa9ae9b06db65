"""Scenes of the ledger's tests, played anew with each call recorded, whatever the tests find."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Sequence

import redis

from proof.traces import Entry
from tests.ledger.scene import Scene, open_ledger
from tests.support.traces import read_traces

__all__ = ["MODULES", "play", "scenes_of"]

#: Whose tests are short, and need nothing but a scene.
MODULES = (
    "attempts", "dead_letters", "due", "ended_tasks", "lock_release", "locks", "named", "opening",
    "orders", "places", "rates", "repeats", "revoking", "runs", "senders", "stopping", "suspects",
    "stories", "workers",
)  # fmt: skip


def scenes_of(module: str) -> list[Callable[[Scene], object]]:
    """Return the tests of a module that need nothing but a scene, and change nothing by hand."""
    name = "tests.proof.stories" if module == "stories" else f"tests.ledger.test_{module}"
    found = importlib.import_module(name)
    return [
        test
        for name, test in vars(found).items()
        if name.startswith("test_")
        and inspect.isfunction(test)
        and list(inspect.signature(test).parameters) == ["scene"]
        and not any(mark.name == "untraced" for mark in getattr(test, "pytestmark", ()))
    ]


def play(
    scenes: Sequence[Callable[[Scene], object]], url: str, client: redis.Redis
) -> Iterator[list[Entry]]:
    """Play each, and return its trace.  What the test itself says of it does not count."""
    for number, scene in enumerate(scenes):
        client.flushdb()
        ledger = open_ledger(url, namespace=f"proof{number}")
        try:
            found = Scene(ledger, client)
            for name in ("me", "other"):
                found.start_worker(name)
            scene(found)
        except Exception:
            # The trace has to tell it.
            pass
        except AssertionError:
            pass
        finally:
            ledger.close()
        yield from read_traces(client).values()
