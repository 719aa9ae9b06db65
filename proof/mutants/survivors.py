"""The mutants that may live, each with the reason."""

from __future__ import annotations

__all__ = ["OF_ORDER", "OF_SCRIPTS"]

OF_SCRIPTS: dict[str, str] = {}

_REFUSED = "The ledger refuses what the attempt asks for then, so that it ends all the same."
_LATER = "It only comes later: a pass makes up for it."
_UNSEEN = "No fast test makes the moment in which it matters: "

OF_ORDER: dict[str, str] = {
    "who stands in line gives way, as if there were none": _REFUSED,
    "an attempt that stands in line counts as running": _REFUSED,
    "an attempt that has published itself again is settled, too": _REFUSED,
    "nobody is told of a burial that a child's death has brought": _LATER,
    "nobody is told of a burial that a worker's death has brought": _LATER,
    "what could not be sent is left as if it had been": _LATER,
    "messages go back before the claims are lost": (
        "The claim refuses a message that comes too early, and a pass sends the record again."
    ),
    "the object is left after the loss was counted": (
        "In between only the task's own next attempt can take it over, and then the older one frees"
        " nothing."
    ),
    "a limit that came too late is let through before it is dropped": (
        "By then the outcome is stored and settled: only the log says more."
    ),
    "a touch is told to the ledger, and not to the attempt": (
        "Only a warning comes too early by it: it is the ledger that takes the attempt away."
    ),
    "the lease counts before the new connection is known": (
        "The statement behind it takes it back at once."
    ),
    "what is taken from a worker is stored by it all the same": (
        "The end of the killed process finds another attempt in the record, and stores nothing."
    ),
    "what was acknowledged is not removed by a worker that ends": (
        "The channel, which is closed before, has done so where the broker was there."
    ),
    "the list that the broker has lost is not made again": (
        "Each message that is taken puts the hash on the list; this is for who takes none any more."
    ),
    "what is turned away and was never recorded has no record": (
        _UNSEEN + "a worker is given a message that names others, and whose record is lost."
    ),
    "the canvas is published before the id is left to it": (
        _UNSEEN + "the last member of a canvas is published before its host has ended."
    ),
    "the stamp is made before the generation is known": (
        _UNSEEN + "a copy comes of what was published first after a restart that lost records."
    ),
    "a sender counts on before it was answered": (
        _UNSEEN + "two threads publish at once, and one of them is never answered."
    ),
    "a plain message is thrown away before it is buried": (
        _UNSEEN + "the sweeper dies between the two."
    ),
}
