"""What does not fit among the workers of a namespace: releases, clocks, witnesses.

Nothing here talks to a server.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import PackageNotFoundError, requires
from itertools import chain
from typing import Final

from celery_reliable.doctor.setups import PACKAGES, WorkerSetup
from celery_reliable.doctor.wording import listed
from celery_reliable.model import Finding

__all__ = ["check_clock", "check_fleet", "check_versions", "supported"]

#: Whose clock is off by less fits: a beat is told some time after it was made.
_CLOCK_SECONDS: Final = 5.0
_DISTRIBUTION: Final = "celery-reliable"
_REQUIREMENT: Final = re.compile(r"^(?P<name>[\w.-]+)\s*(?:\[[^]]*\])?\s*\(?(?P<bounds>[^;)]*)\)?")


def check_fleet(
    workers: Iterable[WorkerSetup], own: str, bounds: Mapping[str, tuple[str, str]]
) -> list[Finding]:
    """Return what is wrong with living workers, for a doctor of the release *own*.

    *bounds*: which releases of other packages there may be, as `check_versions` has it.
    """
    there = list(workers)
    of_others = (check_versions(one.where, one.versions, bounds) for one in there)
    return [
        *_other_versions(there, own),
        *chain.from_iterable(of_others),
        *_clocks(there),
        *_witnesses(there),
    ]


def check_versions(
    where: str, versions: Mapping[str, str], bounds: Mapping[str, tuple[str, str]]
) -> Iterator[Finding]:
    """Yield which of *versions* are not within *bounds*: the least, and the first that is too new;
    either may be empty.
    """
    for package, found in versions.items():
        least, below = bounds.get(package, ("", ""))
        is_old = bool(least) and _numbers(found) < _numbers(least)
        is_new = bool(below) and _numbers(found) >= _numbers(below)
        if is_old or is_new:
            fits = f"{least or 'any'} and later" + (f", below {below}" if below else "")
            yield Finding(
                "celery_reliable.version_unsupported",
                "error" if is_old else "warning",
                f"{where}: {package} {found}; celery-reliable was made for {fits}.",
                f'pip install "{package}' + ",".join(_pinned(least, below)) + '"',
            )


def supported() -> dict[str, tuple[str, str]] | None:
    """Return which releases this package's metadata asks for, by package: the least, and the first
    that is too new.  None where it is not installed as a package.
    """
    try:
        asked = requires(_DISTRIBUTION) or []
    except PackageNotFoundError:
        return None
    found = {}
    for one in asked:
        match = _REQUIREMENT.match(one)
        if match and match["name"] in PACKAGES and "extra" not in one:
            bounds = [part.strip() for part in match["bounds"].split(",")]
            least = next((part[2:].strip() for part in bounds if part.startswith(">=")), "")
            below = next((part[1:].strip() for part in bounds if re.match(r"<\d", part)), "")
            found[match["name"]] = (least, below)
    return found


def check_clock(where: str, ahead_seconds: float | None) -> Iterator[Finding]:
    """Yield whether a clock is too far from the ledger's Redis's."""
    if ahead_seconds is None or abs(ahead_seconds) < _CLOCK_SECONDS:
        return
    direction = "ahead of" if ahead_seconds > 0 else "behind"
    yield Finding(
        "celery_reliable.clock_differs",
        "warning",
        f"The clock of {where} is {abs(ahead_seconds):.0f} seconds {direction} that of the "
        "ledger's Redis.",
        "Let both hosts set their clocks by NTP (chrony, systemd-timesyncd).",
    )


def _other_versions(workers: Iterable[WorkerSetup], own: str) -> Iterator[Finding]:
    others = [f"{one.where} ({one.version})" for one in workers if one.version != own]
    if others:
        yield Finding(
            "celery_reliable.worker_of_another_version",
            "warning",
            f"Living workers run another release than {own}: {listed(others)}.",
            "Finish the upgrade: restart these workers. Releases may run beside each other for as "
            "long as that takes.",
        )


def _clocks(workers: Iterable[WorkerSetup]) -> Iterator[Finding]:
    for one in workers:
        yield from check_clock(one.where, one.clock_ahead_seconds)


def _witnesses(workers: Iterable[WorkerSetup]) -> Iterator[Finding]:
    by_reason: dict[str, list[str]] = {}
    for one in workers:
        if one.no_witness:
            by_reason.setdefault(one.no_witness, []).append(one.where)
    for reason, names in by_reason.items():
        yield Finding(
            "celery_reliable.no_witness",
            "warning",
            f"The death of {listed(names)} would show by the end of the lease only.",
            reason,
        )


def _pinned(least: str, below: str) -> Iterator[str]:
    if least:
        yield f">={least}"
    if below:
        yield f"<{below}"


def _numbers(version: str) -> tuple[int, ...]:
    """Return the numbers with which a version begins."""
    match = re.match(r"\d+(?:\.\d+)*", version)
    numbers = [int(part) for part in match[0].split(".")] if match else [0]
    while len(numbers) > 1 and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)
