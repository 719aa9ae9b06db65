"""What the demo does, in order."""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import redis

from drill.diary import Diary, Run, read_diary
from drill.display import Display
from drill.processes import PROJECT, DemoFailed, Member, Stage
from drill.report import Evidence, Kill, Report, make_report

SAMPLES = PROJECT / "documents" / "samples"
N_WAVES = 3
CONCURRENCY = 2
MAX_LOSSES = 3
RESULT_KEY = "celery-task-meta-"
POISON_TEXT = "A page that no reader survives\n\n[poison: kill the process that reads this]\n"


class Story:
    """The demo from the start of Redis to the report."""

    def __init__(self, stage: Stage, display: Display) -> None:
        self.stage = stage
        self.display = display
        self.diary = Diary()
        self.kills: list[Kill] = []
        self._begin = time.monotonic()
        self._told: set[tuple[int, str]] = set()
        stage.on_pause(self._look)

    def play(self) -> Report:
        """Play all of it and return the report.

        Raises:
            DemoFailed: something that had to happen did not happen in time.
            Interrupted: somebody asked the demo to stop.
        """
        stage = self.stage
        redis_client = stage.start_redis()
        self.display.event(f"Redis of our own: {stage.broker_url}")
        stage.run("migrate", stage.manage("migrate", "--verbosity", "0"))
        stage.start("beat", stage.celery("beat", "--pidfile=", "--schedule", "beat-schedule"))
        workers = [self._start_worker(name) for name in ("alpha@demo", "beta@demo")]
        self.display.event("beat and two prefork workers of two processes each are starting")

        waves = self._waves()
        self._publish(waves[0])
        self._kill_a_worker(workers)
        self._wait_until_checked("the first documents")
        self._publish(waves[1])
        self._kill_a_child(workers)
        (waves[2] / "99-poison.txt").write_text(POISON_TEXT)
        self._publish(waves[2])
        poison = self._see_the_poison_die()
        self._wait_until_checked("every document", but=poison)
        letters = self._dead_letters()
        self.display.event("every document is checked; comparing with what was promised")
        return self._report(redis_client, poison, letters)

    def _start_worker(self, name: str) -> Member:
        concurrency = str(CONCURRENCY)
        return self.stage.start(
            name,
            self.stage.celery(
                *("worker", "-n", name, "-P", "prefork", "-c", concurrency, "--loglevel", "INFO")
            ),
        )

    def _waves(self) -> list[Path]:
        """Deal the samples into folders, as many documents in each as two workers can run."""
        folders = [self.stage.folder / f"wave-{number}" for number in range(1, N_WAVES + 1)]
        files = sorted(SAMPLES.iterdir())
        per_wave = len(files) // N_WAVES
        for number, folder in enumerate(folders):
            folder.mkdir()
            for file in files[number * per_wave : (number + 1) * per_wave]:
                shutil.copy(file, folder)
        return folders

    def _publish(self, folder: Path) -> None:
        names = [path.name for path in sorted(folder.iterdir())]
        self.stage.run(f"check_{folder.name}", self.stage.manage("check_documents", str(folder)))
        self.display.event(f"published: {', '.join(names)}")

    def _look(self) -> None:
        """Read the diary, tell the news, draw."""
        self.diary = read_diary(self.stage.database)
        for run in self.diary.runs:
            name = self.diary.document(run.document).name
            if run.attempt > 1:
                self._tell(run, "begun", f"{name}: attempt {run.attempt} on {run.worker}")
            if run.outcome == "killed itself":
                self._tell(run, "died", f"{name}: killed process {run.pid} of {run.worker}")
            if run.outcome == "refused":
                self._tell(run, "refused", f"{name}: attempt {run.attempt} came late, refused")
        self.display.update(self.diary, self.stage.members)

    def _tell(self, run: Run, what: str, text: str) -> None:
        if (run.pk, what) not in self._told:
            self._told.add((run.pk, what))
            self.display.event(text)

    def _in_mid_task(self, worker: str) -> list[Run]:
        """Return the runs of a worker if all of them are well between start and end, else none."""
        seconds = self.stage.check_seconds
        now = time.time()
        runs = self.diary.open_runs(worker)
        in_middle = all(0.2 * seconds < now - run.started < 0.7 * seconds for run in runs)
        return runs if in_middle else []

    def _kill_a_worker(self, workers: Sequence[Member]) -> None:
        """SIGKILL a worker with its children; start it again once its work is taken over."""
        self.stage.wait_for(
            lambda: all(self._in_mid_task(worker.name) for worker in workers),
            "both workers are in the middle of a check",
            60,
        )
        worker = max(workers, key=lambda one: len(self.diary.open_runs(one.name)))
        worker.kill_group()
        kill = self._note_kill(f"worker {worker.name} killed (SIGKILL)", worker.name)
        self._wait_for_reruns(kill)
        self.stage.restart(worker)
        self.display.event(f"{worker.name} is started again under the same name")

    def _kill_a_child(self, workers: Sequence[Member]) -> None:
        """SIGKILL one pool process in the middle of a check, and let its pool mate live."""
        self.stage.wait_for(
            lambda: any(len(self._in_mid_task(one.name)) == CONCURRENCY for one in workers),
            "a worker has both its processes in the middle of a check",
            60,
        )
        worker = next(one for one in workers if len(self._in_mid_task(one.name)) == CONCURRENCY)
        victim = self.diary.open_runs(worker.name)[0]
        if not worker.owns(victim.pid):
            raise DemoFailed(f"process {victim.pid} is not a child of {worker.name}")
        os.kill(victim.pid, signal.SIGKILL)
        what = f"child {victim.pid} of {worker.name} killed (SIGKILL)"
        self._wait_for_reruns(self._note_kill(what, worker.name, pid=victim.pid))

    def _note_kill(self, what: str, worker: str, pid: int = 0) -> Kill:
        """Note what was killed just now: the worker's open runs, or those of one process."""
        at = time.time()
        # Its rows are as the killed process left them: what has no end now will never get one.
        self.diary = read_diary(self.stage.database)
        open_runs = self.diary.open_runs(worker)
        victims = tuple(run for run in open_runs if pid in (0, run.pid))
        mates = tuple(run for run in open_runs if run not in victims)
        kill = Kill(what, at, victims, mates)
        self.kills.append(kill)
        names = ", ".join(self.diary.document(run.document).name for run in victims)
        self.display.event(f"{what}, in the middle of {names or 'nothing'}")
        return kill

    def _wait_for_reruns(self, kill: Kill) -> None:
        self.stage.wait_for(
            lambda: all(self.diary.run_after(run) for run in kill.victims),
            f"{kill.what}: its tasks run again",
            60,
        )
        for run in kill.victims:
            after = self.diary.run_after(run)
            if after:
                name = self.diary.document(run.document).name
                seconds = after.started - kill.at
                self.display.event(f"{name}: runs again {seconds:.1f} s after the kill")

    def _wait_until_checked(self, which: str, *, but: int = 0) -> None:
        self.stage.wait_for(
            lambda: all(one.is_checked for one in self.diary.documents if one.pk != but),
            f"{which} to be checked",
            90,
        )

    def _see_the_poison_die(self) -> int:
        """Wait until the poison is dead-lettered; return the primary key of its document."""
        pk = next(one.pk for one in self.diary.documents if "poison" in one.name)
        self.stage.wait_for(
            lambda: len(self.diary.runs_of(pk)) > MAX_LOSSES, "the poison runs out of losses", 60
        )
        self.display.event("the poison has spent its losses; asking for the dead letters")
        return pk

    def _dead_letters(self) -> list[dict[str, Any]]:
        """Ask for the dead letters as an operator does, until there is one."""
        deadline = time.monotonic() + 20
        while True:
            command = self.stage.celery("reliable", "dead-letters", "list", "--json")
            told = json.loads(self.stage.run("dead_letters", command))
            letters: list[dict[str, Any]] = told["items"]
            if letters or time.monotonic() > deadline:
                ids = ", ".join(letter["task_id"] for letter in letters)
                self.display.event(f"dead letters: {ids or 'none'}")
                return letters
            self.stage.pause()

    def _report(self, client: redis.Redis, poison: int, letters: list[dict[str, Any]]) -> Report:
        task_ids = {one.task_id for one in self.diary.documents if one.pk != poison}
        deadline = time.monotonic() + 15
        # The row is written before Celery stores the result and the task is settled.
        while left_over := _traces(client, task_ids):
            if time.monotonic() > deadline:
                break
            self.stage.pause()
        self._look()
        evidence = Evidence(
            diary=self.diary,
            kills=tuple(self.kills),
            poison=poison,
            max_losses=MAX_LOSSES,
            results=_results(client, task_ids),
            dead_letters=letters,
            left_over=left_over,
            ended=[one.name for one in self.stage.members if not one.is_alive()],
        )
        return make_report(evidence, time.monotonic() - self._begin)


def _results(client: redis.Redis, task_ids: set[str]) -> dict[str, str]:
    """Return the state that Celery stored for each task."""
    states = {}
    for task_id in task_ids:
        stored = client.get(RESULT_KEY + task_id)
        if stored:
            states[task_id] = str(json.loads(stored)["status"])
    return states


def _traces(client: redis.Redis, task_ids: set[str]) -> list[str]:
    """Return the keys in which one of these tasks is still named, and which stay.

    Results do not count, nor what is kept on purpose: what happened to a task that was lost
    (KEEP_ENDED).  Nor what goes by itself: for a day the ledger keeps a note of what was taken from
    a worker declared dead, in case that worker comes back and has to be told.
    """
    wanted = [task_id.encode() for task_id in task_ids]
    found = []
    for key in client.scan_iter(count=1000):
        is_kept = key.endswith((b":ended", b":ended_at"))
        if key.startswith(RESULT_KEY.encode()) or is_kept or client.pttl(key) > 0:
            continue
        content = key + b" " + _content(client, key)
        if any(task_id in content for task_id in wanted):
            found.append(key.decode(errors="replace"))
    return sorted(found)


def _content(client: redis.Redis, key: bytes) -> bytes:
    """Return all that a key holds, as one text to search in."""
    readers: dict[bytes | str, Callable[[], Iterable[Any]]] = {
        b"string": lambda: [client.get(key) or b""],
        b"list": lambda: client.lrange(key, 0, -1),
        b"set": lambda: client.smembers(key),
        b"zset": lambda: client.zrange(key, 0, -1),
        b"hash": lambda: chain.from_iterable(client.hgetall(key).items()),
    }
    read = readers.get(client.type(key))
    return b" ".join(read()) if read else b""
