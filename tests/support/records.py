"""Records as Redis has them."""

from __future__ import annotations

from collections.abc import Mapping


def fields_of(raw: Mapping[bytes, bytes]) -> dict[str, str]:
    """Return a record's fields as text, with those that stand in others."""
    found = {name.decode(): value.decode("utf-8", "replace") for name, value in raw.items()}
    if "claim" in found:
        claim, token, _, *notes = found["claim"].split("\n")
        pid, claimed_ms, owner = claim.split(" ", 2)
        if found.get("state") == "running":
            found |= {"token": token, "pid": pid, "claimed_ms": claimed_ms, "owner": owner}
        if "stopping " in notes:
            found["stopping_on"] = owner
    if "letter" in found:
        found["reason"], _, _, found["exception"] = found["letter"].split("\n", 3)
    return found
