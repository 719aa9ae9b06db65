"""The tests on mutants, in forks of one process that has collected them: a plugin of pytest's.

``python -m proof.mutants`` starts pytest with it, and reads the lines that it writes.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

from celery_reliable.broker import unacked
from celery_reliable.ledger import scripts, transitions
from proof.mutants import lua

#: So long one test may take, on a busy machine too.  On a mutant that never ends it takes as long.
SECONDS = 120

#: The environment variable that names the file with the job.
_HANDED_OVER = "PROOF_MUTANTS_JOB"


@dataclass(frozen=True)
class Job:
    """What one process of pytest does.

    *killers* are the tests that killed a mutant before, by its key: they are tried first.  A line
    with each outcome is appended to the file *outcomes*.  Which tests call which scripts is kept in
    the file *used*, for the next process.
    """

    mutants: list[lua.Mutant]
    killers: dict[str, str]
    outcomes: str
    used: str

    def hand_over(self, file: Path) -> dict[str, str]:
        """Write it for the other process; return what has to be in its environment."""
        file.write_text(json.dumps(asdict(self)))
        return {_HANDED_OVER: str(file)}

    @classmethod
    def taken(cls) -> Job:
        """Return what this process has to do."""
        told = json.loads(Path(os.environ[_HANDED_OVER]).read_text())
        return cls(**{**told, "mutants": [lua.Mutant(**one) for one in told["mutants"]]})


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool:
    """Try each mutant instead of the code as it is."""
    if session.testsfailed:
        raise session.Interrupted("the tests could not be collected")
    _Trials(session, Job.taken()).run()
    return True


class _Trials:
    """All mutants of a job, one after another."""

    def __init__(self, session: pytest.Session, job: Job) -> None:
        self._session = session
        self._items = {item.nodeid: item for item in session.items}
        self._job = job
        self._used: dict[str, list[str]] | None = None

    def run(self) -> None:
        """Write one line for each mutant: its key, and the test that killed it, or None."""
        # What lasts as long as the session is there before the first fork, and all forks share it.
        self._passes(next(iter(self._items)))
        try:
            self._run()
        finally:
            self._session._setupstate.teardown_exact(None)

    def _run(self) -> None:
        for mutant in self._job.mutants:
            killer = self._job.killers.get(mutant.key)
            outcome, has_hung = None, False
            if killer in self._items and self._is_sound(killer):
                outcome, has_hung = self._tried(mutant, [killer])
            if outcome is None:
                outcome, has_hung = self._tried(mutant, self._candidates(mutant))
            with Path(self._job.outcomes).open("a") as lines:
                lines.write(json.dumps([mutant.key, outcome]) + "\n")
            if has_hung:
                # Its server may be busy for ever: the rest needs another.
                return

    def _is_sound(self, nodeid: str) -> bool:
        """Whether a test passes on the code as it is: one that fails there proves nothing."""
        return bool(self._in_a_fork(lambda: self._passes(nodeid)))

    def _passes(self, nodeid: str) -> bool:
        item = self._items[nodeid]
        signal.alarm(SECONDS)
        # As if another test followed, of another module: the session's server stays.
        following: Any = self._session
        reports = runtestprotocol(item, log=False, nextitem=following)
        signal.alarm(0)
        return not any(report.failed for report in reports)

    def _candidates(self, mutant: lua.Mutant) -> list[str]:
        """Return the tests that call the script; those that call few others first."""
        if self._used is None:
            kept = Path(self._job.used)
            if not kept.exists():
                found = self._in_a_fork(self._scripts_used)
                assert found is not None, "a test does not end on the code as it is"
                # Another process may read it: it is there as a whole, or not at all.
                own = kept.with_name(f"{kept.name}.{os.getpid()}")
                own.write_text(json.dumps(found))
                own.replace(kept)
            self._used = json.loads(kept.read_text())
        used, names = self._used, _scripts_with(mutant)
        able = [one for one in used if not names.isdisjoint(used[one])]
        return sorted(able, key=lambda one: (mutant.script not in one, len(used[one])))

    def _scripts_used(self) -> dict[str, list[str]]:
        """Run all tests; return which scripts each of those that passed has called."""
        used: dict[str, set[str]] = {nodeid: set() for nodeid in self._items}
        now: list[str] = []
        step, script = transitions.Step.__init__, unacked._script

        def stepped(self: Any, transition: Any, *rest: Any) -> None:
            # A thread of a test that failed may go on.
            used.get(now[-1], set()).add(f"ledger/{transition.name}")
            step(self, transition, *rest)

        def loaded(name: str) -> Any:
            used.get(now[-1], set()).add(f"broker/{name}")
            return script(name)

        transitions.Step.__init__ = stepped  # type: ignore[assignment, method-assign]
        unacked._script = loaded  # type: ignore[assignment]
        for nodeid in self._items:
            now.append(nodeid)
            if not self._passes(nodeid):
                del used[nodeid]
        return {nodeid: sorted(names) for nodeid, names in used.items() if names}

    def _tried(self, mutant: lua.Mutant, nodeids: list[str]) -> tuple[str | None, bool]:
        """Return the first test that fails on the mutant, None when all pass; and whether it never
        ended.
        """
        # Who is killed cannot say at which test.
        at = Path(f"{self._job.outcomes}.at.{os.getpid()}")

        def killer() -> str:
            _put(mutant)
            for nodeid in nodeids:
                at.write_text(nodeid)
                if not self._passes(nodeid):
                    return nodeid
            return ""

        found: str | None = self._in_a_fork(killer)
        try:
            return (at.read_text(), True) if found is None else (found or None, False)
        finally:
            at.unlink(missing_ok=True)

    def _in_a_fork(self, doing: Callable[[], Any]) -> Any:
        """Return what a function returns in a fork; None when a test took too long."""
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            # Whatever happens, no second process goes on as if it were the first.
            try:
                signal.signal(signal.SIGALRM, signal.SIG_DFL)
                told = json.dumps(doing())
            except BaseException as error:
                told = json.dumps({"error": repr(error)})
            with contextlib.suppress(BaseException), os.fdopen(writer, "w") as out:
                out.write(told)
            os._exit(0)
        os.close(writer)
        with os.fdopen(reader) as lines:
            told = lines.read()
        _, status = os.waitpid(child, 0)
        if os.WIFSIGNALED(status):
            return None
        found = json.loads(told)
        if isinstance(found, dict) and "error" in found:
            raise RuntimeError(found["error"])
        return found


def _scripts_with(mutant: lua.Mutant) -> set[str]:
    """Return the scripts that are sent otherwise: what they share stands in several."""
    if mutant.script != scripts.FUNCTIONS:
        return {f"{mutant.folder}/{mutant.script}"}
    whole = scripts.source(scripts.FUNCTIONS)
    return {
        f"ledger/{name}"
        for name in scripts.names()
        if scripts.composed(text := scripts.source(name), mutant.text)
        != scripts.composed(text, whole)
    }


def _put(mutant: lua.Mutant) -> None:
    """Let this process read the mutant instead of its script, whenever it reads it."""
    path, read = lua.path(mutant.folder, mutant.script), Path.read_text

    def instead(self: Path, *args: Any, **kwargs: Any) -> str:
        return mutant.text if self == path else read(self, *args, **kwargs)

    Path.read_text = instead  # type: ignore[method-assign]
    # Tests that record their calls do this, too: they read all scripts anew.
    for cached in (scripts.script, scripts.together, scripts.inside, unacked._script):
        cached.cache_clear()
