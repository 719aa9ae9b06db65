"""The suite beside processes that keep the cores busy: ``python -m tests.support.stress 3``."""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

BUSY = 2
SUITE = ("-m", "pytest", "-q", "-n", "5", "--dist", "worksteal", "-m", "not full")


@contextmanager
def busy(count: int) -> Iterator[None]:
    """Keep so many processes computing; each is killed at the end."""
    loops = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(count)]
    try:
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def main() -> int:
    """Run the suite as often as asked, and return how many runs failed."""
    parser = argparse.ArgumentParser(prog="stress", description=__doc__)
    parser.add_argument("times", type=int, nargs="?", default=3)
    times = parser.parse_args().times
    with busy(BUSY):
        codes = [subprocess.call([sys.executable, *SUITE]) for _ in range(times)]
    failed = sum(code != 0 for code in codes)
    print(f"{failed} of {times} runs failed beside {BUSY} busy processes")
    return failed


if __name__ == "__main__":
    sys.exit(main())
