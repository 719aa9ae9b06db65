"""Looks up what is installed in the database of known vulnerabilities: ``tox run -e audit``.

pip-audit passes what the database does not know, and behind a mirror of PyPI that leaves the
database out, that is everything.  So a release that is known to be vulnerable is looked up first:
where that is not found, nothing was looked up, and this says so.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from typing import Any

#: CVE-2019-10906 and others.
KNOWN = "jinja2==2.10"
OURS = "celery-reliable"


def verdict(known: Any, found: Any) -> tuple[int, str]:
    """Return the exit code and what to say, from pip-audit's reports on `KNOWN` and on what is
    installed; a report is None where pip-audit could not make one.
    """
    if found is None or not vulnerable(known):
        return 0, (
            "NOT AUDITED: the database of vulnerabilities cannot be reached from here "
            f"({KNOWN}, which is known to have some, is not found in it)."
        )
    bad = vulnerable(found)
    if bad:
        return 1, "\n".join(["Known vulnerabilities:", *bad])
    looked_up = [one for one in found["dependencies"] if "skip_reason" not in one]
    skipped = [
        f"{one['name']}: {one['skip_reason']}"
        for one in found["dependencies"]
        if "skip_reason" in one and one["name"] != OURS
    ]
    if skipped:
        return 1, "\n".join(["Not looked up:", *skipped])
    return 0, f"No known vulnerability in {len(looked_up)} packages."


def vulnerable(report: Any) -> list[str]:
    """What a report finds, one line for each."""
    found = (report or {}).get("dependencies", [])
    return [
        f"{one['name']} {one['version']}: {bug['id']}, mended in "
        f"{', '.join(bug['fix_versions']) or 'no release'}"
        for one in found
        for bug in one.get("vulns", [])
    ]


def report_of(options: Sequence[str]) -> Any:
    """Return what pip-audit reports; None where it cannot."""
    command = [sys.executable, "-m", "pip_audit", "--format", "json", "--progress-spinner", "off"]
    ran = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    try:
        return json.loads(ran.stdout)
    except ValueError:
        return None


def main() -> int:
    """Look, and say what was found."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as asked:
        asked.write(f"{KNOWN}\n")
        asked.flush()
        known = report_of(["--requirement", asked.name, "--no-deps", "--disable-pip"])
    code, said = verdict(known, report_of(["--local"]) if vulnerable(known) else None)
    sys.stdout.write(f"{said}\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
