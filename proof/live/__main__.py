"""``python -m proof.live -A proj``: compare what a live server does with the ledger's model.

Prints one JSON object.  Exit code 1 if a call is not as the model says, or is of a script that the
model does not know.
"""

from __future__ import annotations

import argparse
import json
import sys

from celery.app.utils import find_app

from celery_reliable.app import reliable_of
from proof.live import verify


def main() -> int:
    """Watch, print what was found, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m proof.live", description=__doc__)
    parser.add_argument("-A", "--app", required=True, help="as for `celery -A`")
    parser.add_argument("--seconds", type=float, default=60.0, help="for how long")
    parser.add_argument("--most", type=int, default=1_000_000, help="end after so many calls")
    given = parser.parse_args()
    ledger = reliable_of(find_app(given.app)).own_ledger(
        reply_timeout_seconds=5.0, patience_seconds=3.0, is_for_operators=True
    )
    try:
        found = verify(ledger, seconds=given.seconds, most_calls=given.most)
    finally:
        ledger.close()
    print(json.dumps(vars(found), indent=1))
    return 1 if found.problem or found.uncovered else 0


if __name__ == "__main__":
    sys.exit(main())
