"""Records as Redis has them."""

from __future__ import annotations

from collections.abc import Mapping


def fields_of(raw: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return a record's fields as text, with those that stand in `claim` and in `stopping`."""
    found = {name.decode(): value.decode("utf-8", "replace") for name, value in raw.items()}
    if "claim" in found:
        claim, _, found["token"] = found["claim"].partition("\n")
        found["pid"], found["claimed_ms"], found["owner"] = claim.split(" ", 2)
    if "stopping" in found:
        found["stopping_on"] = found["stopping"].partition("\n")[0].partition(" ")[2]
    return found
