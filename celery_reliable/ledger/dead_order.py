"""Dead letters in the order of their burials, from any place on."""

from __future__ import annotations

from typing import Any

__all__ = ["entries_after"]


def entries_after(
    client: Any,
    key: str,
    after: tuple[int, bytes] | None,
    limit: int,
    *,
    is_latest_first: bool = False,
    until_ms: int | None = None,
) -> list[tuple[bytes, int]]:
    """Return ids and times of burials: at most *limit* that follow the place *after*, (time, id),
    whether that one is there still or not.  *until_ms*: none that was buried later.

    Fewer than *limit* are the last.  The cost is that of what is returned, and of what was buried
    in the very millisecond of *after*.
    """
    low: Any = "-inf"
    high: Any = "+inf" if until_ms is None else until_ms
    if after is not None and is_latest_first:
        high = after[0] if until_ms is None else min(after[0], until_ms)
    elif after is not None:
        low = after[0]
    begin, end = (high, low) if is_latest_first else (low, high)
    found: list[tuple[bytes, int]] = []
    offset = 0
    while len(found) < limit:
        # One of them is the one before, as a rule.
        asked = limit - len(found) + 1
        got = client.zrange(
            key,
            begin,
            end,
            byscore=True,
            desc=is_latest_first,
            offset=offset,
            num=asked,
            withscores=True,
        )
        for id_, score in got:
            entry = (int(score), id_)
            if after is None or (entry < after if is_latest_first else entry > after):
                found.append((id_, int(score)))
        if len(got) < asked:
            break
        offset += len(got)
    return found[:limit]
