"""What it costs to import the package beside Celery and its Redis transport, as a ratio.

`python -m benchmarks.importing [--rounds N] [--at-most RATIO]` starts processes that import the one
and the other in turns, and compares the medians.  It exits with 1 if the ratio is higher.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile

_CELERY = "import celery, kombu.transport.redis, celery.backends.redis"
_BOTH = f"{_CELERY}, celery_reliable"
_TIMED = "import time\nstarted = time.process_time()\n{}\nprint(time.process_time() - started)"


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.importing", description=__doc__)
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--at-most", type=float, default=1.35)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        # A first round compiles, wherever the environment keeps compiled modules.
        environ = {**os.environ, "PYTHONPYCACHEPREFIX": folder, "PYTHONDONTWRITEBYTECODE": ""}
        pairs = [
            (_seconds(_CELERY, environ), _seconds(_BOTH, environ)) for _ in range(given.rounds + 1)
        ]
    own, both = (statistics.median(one) for one in zip(*pairs[1:], strict=True))
    print(f"Celery {1000 * own:.0f} ms, with the package {1000 * both:.0f} ms: {both / own:.2f}")
    sys.exit(both / own > given.at_most)


def _seconds(imports: str, environ: dict[str, str]) -> float:
    ran = subprocess.run(
        [sys.executable, "-c", _TIMED.format(imports)],
        env=environ,
        capture_output=True,
        text=True,
        check=True,
    )
    return float(ran.stdout)


if __name__ == "__main__":
    main()
