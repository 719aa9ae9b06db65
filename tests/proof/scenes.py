"""Scenes of the ledger, played with each call recorded, whatever their answers are."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator, Sequence
from functools import partial

import redis

from proof.traces import Entry
from tests.ledger.expected import EXPECTED
from tests.ledger.scene import Scene, open_ledger
from tests.ledger.stages import STAGES, Steps
from tests.support.traces import read_traces

__all__ = ["GROUPS", "play", "scenes_of"]

#: The steps of the state machine, each on every state of a task; and modules whose tests are short,
#: and need nothing but a scene.
GROUPS = (
    *EXPECTED, "places", "stories", "suspects", "workers",
)  # fmt: skip


def scenes_of(group: str) -> list[Callable[[Scene], object]]:
    """Return what a group has the ledger do, each in a ledger of its own.

    Of a module these are the tests that need nothing but a scene, and change nothing by hand.
    """
    if group in EXPECTED:
        return [partial(_step, group, stage) for stage in EXPECTED[group]]
    name = "tests.proof.stories" if group == "stories" else f"tests.ledger.test_{group}"
    found = importlib.import_module(name)
    return [
        test
        for name, test in vars(found).items()
        if name.startswith("test_")
        and inspect.isfunction(test)
        and list(inspect.signature(test).parameters) == ["scene"]
        and not any(mark.name == "untraced" for mark in getattr(test, "pytestmark", ()))
    ]


def _step(step: str, stage: str, scene: Scene) -> object:
    return getattr(Steps(scene, STAGES[stage](scene)), step)()


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
