"""Runs Celery's own integration tests with `ReliableTask` under every task, and fails where one
fails that passes on stock Celery.

They come from the sdist of the very release that is installed, into a temporary folder.  Redis is
a server of its own, as broker and for results.  By default a share that takes a few minutes;
`--all` takes more than half an hour, and other arguments (files, `-k`) go to pytest.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

import celery

from tests.support.redis_server import RedisServer

ROOT = Path(__file__).parents[2]
FOLDER = "t/integration"
_NAMES = [
    *("test_retry", "reject", "replaced_task_nesting", "test_simple_chain", "test_complex_chain"),
    *("second_order_replace", "replaced_with_a_chain", "chain_inside_group"),
    "replaced_nested_chord",
    *("group_chord_counting", "chord_on_error", "header_task_replaced", "body_task_replaced"),
]
_LEFT_OUT = [
    f"--deselect={FOLDER}/{name}"
    for name in (
        # It sets what its handler notes to False only when `delay` has returned: a quick worker,
        # also on a busy machine, has received the task by then.
        "test_tasks.py::test_task_replacement::test_replaced_task_nesting_level_0",
        # They say that what runs is acknowledged already, which no task is that acknowledges late.
        "test_inspect.py::test_Inspect::test_active",
        "test_inspect.py::test_Inspect::test_query_task",
    )
]
#: What a run without arguments takes: each kind of canvas, and what tasks go through.
SHARE = [f"{FOLDER}/test_tasks.py", f"{FOLDER}/test_canvas.py", *_LEFT_OUT]
SHARE += ["-k", " or ".join(_NAMES)]
ALL = [*(f"{FOLDER}/{name}.py" for name in ("test_tasks", "test_canvas", "test_group_chains",
       "test_inspect", "test_redis_backend", "test_serialization")), *_LEFT_OUT]  # fmt: skip
#: A test that takes longer hangs.
TEST_SECONDS = 200


class Suite:
    """The unpacked tests, and the server that they use."""

    def __init__(self, folder: Path, server: RedisServer) -> None:
        self.folder = folder
        self.server = server

    def run(self, base: str, arguments: list[str]) -> dict[str, str]:
        """Run tests; return for each whether it passed, failed or was skipped."""
        with self.server.client() as client:
            client.flushall()
        report = self.folder / f"{base}.xml"
        environ = {
            **os.environ,
            "PYTHONPATH": f"{ROOT}{os.pathsep}{self.folder}",
            "CELERY_SUITE_BASE": base,
            "TEST_BROKER": self.server.url(),
            "TEST_BACKEND": self.server.url(),
            "REDIS_HOST": "127.0.0.1",
            "REDIS_PORT": str(self.server.port),
        }
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider"]
        command += ["-p", "celery.contrib.pytest", "-p", "tests.celery_suite.plugin"]
        command += ["--timeout", str(TEST_SECONDS), "--junitxml", str(report), *arguments]
        print(f"== {base}: {' '.join(arguments)}", flush=True)
        subprocess.run(command, cwd=self.folder, env=environ, check=False)
        return _outcomes(report)


#: What a test's entry in a report has inside, and what that says.
_ENDS = {"failure": "failed", "error": "failed", "skipped": "skipped"}


def _outcomes(report: Path) -> dict[str, str]:
    found: dict[str, str] = {}
    if not report.exists():
        return found
    for case in ET.parse(report).iter("testcase"):
        name = f"{case.get('classname', '').rpartition('integration.')[2]}::{case.get('name')}"
        kinds = {child.tag for child in case}
        outcome = next((_ENDS[kind] for kind in _ENDS if kind in kinds), "passed")
        # One that fails in its teardown too is listed twice.
        found[name] = "failed" if found.get(name) == "failed" else outcome
    return found


def unpack(folder: Path) -> None:
    """Fetch the installed release's sdist, and unpack its tests."""
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps"]
    command += ["--no-binary", ":all:", f"celery=={celery.__version__}", "--dest", str(folder)]
    subprocess.run(command, check=True)
    (sdist,) = folder.glob("celery-*.tar.gz")
    with tarfile.open(sdist) as archive:
        for member in archive.getmembers():
            # Not the package itself: the installed one is what is tried.
            member.name = member.name.partition("/")[2]
            is_wanted = member.name.startswith("t/") or member.name == "pyproject.toml"
            if member.isfile() and is_wanted:
                archive.extract(member, folder)


def _selected(names: list[str]) -> list[str]:
    """Return arguments that select these tests alone."""
    chosen = []
    for name in names:
        module, _, test = name.rpartition("::")
        module, *classes = module.split(".")
        chosen.append("::".join([f"{FOLDER}/{module}.py", *classes, test]))
    return chosen


def main() -> int:
    """Run, compare and tell."""
    # A `timeout` ends us by SIGTERM, which alone would leave a server behind.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    parser = argparse.ArgumentParser(prog="tests.celery_suite", description=__doc__)
    parser.add_argument("--all", action="store_true", help="all files that need Redis alone")
    parser.add_argument("--both", action="store_true", help="run all on stock Celery too, first")
    options, rest = parser.parse_known_args()
    arguments = rest or (ALL if options.all else SHARE)
    with tempfile.TemporaryDirectory() as name, RedisServer(Path(name)) as server:
        suite = Suite(Path(name), server)
        unpack(suite.folder)
        stock = suite.run("stock", arguments) if options.both else {}
        ours = suite.run("reliable", arguments)
        failed = [test for test, outcome in ours.items() if outcome == "failed"]
        if not ours:
            print("no tests were run")
            return 1
        unknown = [test for test in failed if test not in stock]
        if unknown:
            stock |= suite.run("stock", _selected(unknown))
        differ = [test for test in failed if stock.get(test) == "passed"]
        faults = []
        if differ:
            # Some of Celery's tests fail now and then.
            again, on_stock = (suite.run(base, _selected(differ)) for base in ("reliable", "stock"))
            wrong = ("failed", "passed")
            faults = [one for one in differ if (again.get(one), on_stock.get(one)) == wrong]
    counts = {kind: list(ours.values()).count(kind) for kind in ("passed", "failed", "skipped")}
    print(f"with ReliableTask: {counts}; failed on stock too: {len(failed) - len(differ)}; "
          f"not again: {len(differ) - len(faults)}")  # fmt: skip
    for test in faults:
        print(f"FAULT: {test} passes on stock Celery, and fails with ReliableTask")
    return 1 if faults else 0


sys.exit(main())
