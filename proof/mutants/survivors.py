"""The mutants that may live, each with the reason."""

from __future__ import annotations

__all__ = ["OF_ORDER", "OF_SCRIPTS"]

OF_SCRIPTS: dict[str, str] = {}

_REFUSED = "The ledger refuses what the attempt asks for then, so that it ends all the same."
_LATER = "It only comes later: a pass announces what Celery has not been told of."

OF_ORDER: dict[str, str] = {
    "who stands in line gives way, as if there were none": _REFUSED,
    "an attempt that stands in line counts as running": _REFUSED,
    "nobody is told of a burial that a child's death has brought": _LATER,
    "nobody is told of a burial that a worker's death has brought": _LATER,
    "the object is left after the loss was counted": (
        "In between only the task's own next attempt can take it over, and then the older one frees"
        " nothing."
    ),
    "a limit that came too late is let through before it is dropped": (
        "By then the outcome is stored and settled: only the log says more."
    ),
}
