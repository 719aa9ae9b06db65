"""Values of the desk as JSON that any client can read."""

from __future__ import annotations

import json
import re
from typing import Any

from celery_reliable.operations import as_json as plain

__all__ = ["as_json"]

#: An escaped backslash, or a pair of surrogates, or half of one, in JSON of ASCII only.
_HALVES = re.compile(r"\\\\|\\ud[89ab]..\\ud[c-f]..|(\\ud[89a-f]..)")


def as_json(value: Any) -> bytes:
    """Return *value* as JSON.  What JSON has not (NaN, infinity) is null; half a character is
    shown as the text of its escape.
    """
    value = plain(value)
    try:
        text = json.dumps(value, allow_nan=False)
    except ValueError:
        known = json.loads(json.dumps(value), parse_constant=lambda _: None)
        text = json.dumps(known, allow_nan=False)
    return _HALVES.sub(lambda found: ("\\" if found[1] else "") + found[0], text).encode()
