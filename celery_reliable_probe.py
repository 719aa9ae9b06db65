"""Whether the Celery workers of this container, or machine, live and are ready: for probes.

    celery-reliable-probe livez DIRECTORY
    celery-reliable-probe readyz DIRECTORY --worker one@host

A worker with the setting PROBE_DIRECTORY says once a second, in a file of its own there, how it is.
This looks at the files, and asks nobody.  It is no part of the package, and imports nothing but the
standard library: to import Celery takes a second, and a probe is run all the time.

Exit codes: 0 it is so; 1 it is not, and a line for each reason is on stderr; 2 wrongly called.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any

__all__ = ["identity_of", "is_there", "main", "name_of", "problems"]

SUFFIX = ".worker.json"


def name_of(nodename: str, pid: int) -> str:
    """Return the name of a worker's file."""
    plain = "".join(char if char.isalnum() or char in "@-_." else "_" for char in nodename)
    return f"{plain[:150]}.{pid}{SUFFIX}"


def identity_of(pid: int) -> dict[str, Any]:
    """Return what tells a process from all others, also from one that gets its number later.

    Without /proc that is its number alone.
    """
    return {
        "pid": pid,
        "born": _born(pid),
        "pids": _pids(),
        "boot": _read("/proc/sys/kernel/random/boot_id").strip(),
    }


def is_there(identity: dict[str, Any]) -> bool:
    """Whether a process has not ended.  False for one of another container, or of an earlier boot.

    A zombie has ended.
    """
    pid = identity["pid"]
    if identity != identity_of(pid):
        return False
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _born(pid: int) -> str:
    """Return when a process began, in ticks since the boot; empty for none."""
    # Its name, in parentheses, may contain anything.
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return "" if not fields or fields[0] in "ZX" else fields[19]


def _pids() -> str:
    """Return which numbering of processes this is: a container has its own."""
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def _read(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def signs(directory: str) -> Iterator[dict[str, Any]]:
    """Yield what the workers say whose processes are there.  Raises OSError."""
    for name in sorted(os.listdir(directory)):
        if not name.endswith(SUFFIX):
            continue
        try:
            sign = json.loads(_read(os.path.join(directory, name)))
            if is_there(sign["identity"]):
                yield sign
        except (ValueError, KeyError, TypeError):
            # Nobody of ours wrote it.
            continue


def problems(
    kind: str, directory: str, workers: Sequence[str] = (), max_age_seconds: float | None = None
) -> list[str]:
    """Return why it is not so that all *workers* are "livez" or "readyz"; without *workers* all
    whose processes are there, and at least one.

    *max_age_seconds*: what a worker said longer ago counts no more; its lease by default.
    """
    try:
        found = list(signs(directory))
    except OSError as exc:
        return [f"{directory}: {exc.strerror}; workers with PROBE_DIRECTORY make it"]
    reasons = []
    for name in workers or [""]:
        of_name = [one for one in found if name in ("", one["nodename"])]
        if not of_name:
            reasons.append(f"no process of a worker{' ' + name if name else ''} in {directory}")
        for one in of_name:
            problem = _problem(kind, one, max_age_seconds)
            if problem:
                reasons.append(f"{one['nodename']} (pid {one['identity']['pid']}) {problem}")
    return reasons


def _problem(kind: str, sign: dict[str, Any], max_age_seconds: float | None) -> str:
    most = sign["fresh_seconds"] if max_age_seconds is None else max_age_seconds
    # One clock for all processes since the boot; nobody sets it.
    age = time.monotonic() - sign["written"]
    if age > most:
        return f"has said nothing for {age:.1f} s: its main process stands still"
    # Who is not alive is not ready.
    reason = sign["not_alive"] or (sign["not_ready"] if kind == "readyz" else "")
    return str(reason)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="celery-reliable-probe",
        description="Ask whether the Celery workers of this container live (livez), or can take "
        "work (readyz). Exit codes: 0 yes, 1 no.",
    )
    parser.add_argument("kind", choices=("livez", "readyz"))
    parser.add_argument("directory", help="PROBE_DIRECTORY of the workers")
    parser.add_argument(
        "--worker",
        action="append",
        default=[],
        metavar="NAME",
        help="a nodename; may be repeated. Without it all whose processes are there are asked",
    )
    parser.add_argument(
        "--max-age",
        type=float,
        metavar="SECONDS",
        help="what was said longer ago counts no more (LEASE_SECONDS)",
    )
    given = parser.parse_args(arguments)
    reasons = problems(given.kind, given.directory, given.worker, given.max_age)
    for reason in reasons:
        sys.stderr.write(f"{reason}\n")
    return 1 if reasons else 0


if __name__ == "__main__":
    sys.exit(main())
