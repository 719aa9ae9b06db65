"""The report: what was promised, compared with what the diary, Celery and Redis say."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any

from drill.diary import Diary, Run

# A killed worker is declared dead within WITNESS_SECONDS (1.5) and two passes of SWEEP_SECONDS (2);
# a survivor that is busy may take as long as one check to have a process free.
RERUN_SECONDS = 10.0


@dataclass(frozen=True)
class Kill:
    """Something that the demo killed, when, and the runs that ended by it."""

    what: str
    at: float
    victims: tuple[Run, ...]
    mates: tuple[Run, ...] = ()


@dataclass(frozen=True)
class Evidence:
    """Everything that the report is made from."""

    diary: Diary
    kills: tuple[Kill, ...]
    poison: int
    max_losses: int
    results: dict[str, str]
    dead_letters: list[dict[str, Any]]
    left_over: list[str]
    ended: list[str]

    @property
    def good(self) -> list[int]:
        """The primary keys of all documents but the poison."""
        return [document.pk for document in self.diary.documents if document.pk != self.poison]


@dataclass(frozen=True)
class Check:
    """One promise, whether it was kept, and the facts."""

    name: str
    ok: bool
    facts: str


@dataclass(frozen=True)
class Report:
    """All checks, with what they were made from."""

    checks: tuple[Check, ...]
    reruns: tuple[dict[str, Any], ...]
    seconds: float
    evidence: Evidence = field(repr=False)

    @property
    def ok(self) -> bool:
        """Whether every promise was kept."""
        return all(check.ok for check in self.checks)

    @property
    def verdict(self) -> str:
        """The report in one line."""
        if self.ok:
            return f"All {len(self.checks)} promises were kept ({self.seconds:.0f} s)."
        broken = sum(not check.ok for check in self.checks)
        return f"{broken} of {len(self.checks)} promises were broken ({self.seconds:.0f} s)."

    def write(self, path: Path, **more: Any) -> None:
        """Write the report as JSON, with further facts beside it."""
        facts = {
            "ok": self.ok,
            "seconds": round(self.seconds, 1),
            "checks": [asdict(check) for check in self.checks],
            "reruns": list(self.reruns),
            "poison": self.evidence.poison,
            "dead_letters": self.evidence.dead_letters,
            "documents": [asdict(document) for document in self.evidence.diary.documents],
            "runs": [asdict(run) for run in self.evidence.diary.runs],
            **more,
        }
        path.write_text(json.dumps(facts, indent=2) + "\n")


def make_report(evidence: Evidence, seconds: float) -> Report:
    """Compare what was promised with what was seen."""
    reruns = _reruns(evidence)
    checks = (
        _settled(evidence),
        _written_once(evidence),
        *(_ran_again(kill, reruns) for kill in evidence.kills),
        _only_the_killed_ran_again(evidence),
        _poison_buried(evidence),
        _no_overlap(evidence),
        _nothing_left(evidence),
        _nobody_fell_over(evidence),
    )
    return Report(checks, tuple(reruns), seconds, evidence)


def _reruns(evidence: Evidence) -> list[dict[str, Any]]:
    """List, for every run that a kill ended, when and where its task ran again."""
    found = []
    for kill in evidence.kills:
        for run in kill.victims:
            after = evidence.diary.run_after(run)
            found.append(
                {
                    "kill": kill.what,
                    "document": evidence.diary.document(run.document).name,
                    "worker": run.worker,
                    "again_on": after.worker if after else None,
                    "seconds": round(after.started - kill.at, 2) if after else None,
                }
            )
    return found


def _settled(evidence: Evidence) -> Check:
    unsettled = [
        f"{evidence.diary.document(pk).name} ({evidence.results.get(task_id, 'no result')})"
        for pk in evidence.good
        for task_id in [evidence.diary.document(pk).task_id]
        if evidence.results.get(task_id) != "SUCCESS"
    ]
    n_good = len(evidence.good)
    facts = f"{n_good - len(unsettled)} of {n_good} tasks ended with SUCCESS"
    return Check("every document's task is settled", not unsettled, _with(facts, unsettled))


def _written_once(evidence: Evidence) -> Check:
    wrong = []
    for pk in evidence.good:
        document = evidence.diary.document(pk)
        runs = evidence.diary.runs_of(pk)
        written = [run.attempt for run in runs if run.outcome == "written"]
        newest = max((run.attempt for run in runs), default=0)
        if not document.is_checked or written != [newest] or document.attempt != newest:
            wrong.append(f"{document.name} (written by {written}, newest {newest})")
    facts = f"{len(evidence.good) - len(wrong)} of {len(evidence.good)} rows"
    return Check("every row is written once, by its newest attempt", not wrong, _with(facts, wrong))


def _ran_again(kill: Kill, reruns: list[dict[str, Any]]) -> Check:
    mine = [rerun for rerun in reruns if rerun["kill"] == kill.what]
    late = [
        rerun
        for rerun in mine
        if rerun["seconds"] is None or not 0 < rerun["seconds"] <= RERUN_SECONDS
    ]
    facts = "; ".join(
        f"{rerun['document']} again on {rerun['again_on']} after {rerun['seconds']} s"
        for rerun in mine
    )
    name = f"{kill.what}: what it ran is run again within {RERUN_SECONDS:g} s"
    return Check(name, bool(mine) and not late, facts or "it ran nothing")


def _only_the_killed_ran_again(evidence: Evidence) -> Check:
    victims = {run.pk for kill in evidence.kills for run in kill.victims}
    n_runs = dict.fromkeys(evidence.good, 1)
    for kill in evidence.kills:
        for run in kill.victims:
            n_runs[run.document] += 1
    wrong = [
        f"{evidence.diary.document(pk).name} ran {len(evidence.diary.runs_of(pk))} times"
        for pk, expected in n_runs.items()
        if len(evidence.diary.runs_of(pk)) != expected
    ]
    wrong += [
        f"attempt {run.attempt} of {evidence.diary.document(run.document).name} has no end"
        for run in evidence.diary.open_runs()
        if run.pk not in victims
    ]
    n_mates = sum(len(kill.mates) for kill in evidence.kills)
    facts = f"{len(victims)} runs were killed, {n_mates} ran beside a killed child untouched"
    name = "nothing but what was killed ran a second time"
    return Check(name, not wrong, _with(facts, wrong))


def _poison_buried(evidence: Evidence) -> Check:
    runs = evidence.diary.runs_of(evidence.poison)
    task_id = evidence.diary.document(evidence.poison).task_id
    buried = [letter["task_id"] for letter in evidence.dead_letters]
    expected = list(range(1, evidence.max_losses + 2))
    attempts = [run.attempt for run in runs]
    reasons = [letter.get("reason") for letter in evidence.dead_letters]
    ok = attempts == expected and buried == [task_id] and reasons == ["lost"]
    facts = f"attempts {attempts}; {len(buried)} dead letters {reasons}"
    if buried and buried != [task_id]:
        facts += f" ({', '.join(buried)}; the poison is {task_id})"
    name = f"the poison stops after MAX_LOSSES + 1 = {evidence.max_losses + 1} runs, dead-lettered"
    return Check(name, ok, facts)


def _no_overlap(evidence: Evidence) -> Check:
    died = {run.pk: kill.at for kill in evidence.kills for run in kill.victims}
    overlaps = []
    n_pairs = 0
    for document in evidence.diary.documents:
        for first, second in pairwise(evidence.diary.runs_of(document.pk)):
            n_pairs += 1
            end = first.ended if first.ended is not None else died.get(first.pk)
            if end is None or second.started < end:
                overlaps.append(f"{document.name}: {first.attempt} and {second.attempt}")
    facts = f"{n_pairs} pairs of runs compared"
    return Check("no two runs of one document overlap", not overlaps, _with(facts, overlaps))


def _nothing_left(evidence: Evidence) -> Check:
    name = "no message, record or lock of a settled task stays in Redis"
    facts = "none" if not evidence.left_over else ""
    return Check(name, not evidence.left_over, _with(facts, evidence.left_over))


def _nobody_fell_over(evidence: Evidence) -> Check:
    name = "beat and both workers are up, but for the kills"
    return Check(name, not evidence.ended, _with("", evidence.ended) or "all are up")


def _with(facts: str, exceptions: list[str]) -> str:
    """Append what is wrong to the facts."""
    return "; ".join(filter(None, [facts, *exceptions]))
