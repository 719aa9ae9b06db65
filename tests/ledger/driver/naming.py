"""Named workers and runs in a world: who may run what, and on how many workers it was run."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from itertools import product
from typing import Any

from tests.ledger.driver.facts import Body, Call
from tests.ledger.driver.tasks import OWN, QUEUE

#: Every other worker, by its name.
ODD = "celery@w*[13579]"
#: Workers that nobody starts.
_NOBODY = "celery@nobody"
_RUN = ("work", "light")


@dataclass(eq=False)
class Run:
    """One call of `run_on`."""

    #: What is said of it counts for each of its members.
    call: Call
    #: As it was told to its caller; none before that.
    ids: list[str] = field(default_factory=list)


class Naming:
    """Who names workers in one world, and whether only those run it."""

    def __init__(self, world: Any) -> None:
        self.world = world
        #: By the nonce of a call.
        self._only: dict[str, str] = {}
        self._runs: dict[str, Run] = {}

    @property
    def is_there(self) -> bool:
        return "named" in self.world.climate.kinds

    # -- who calls

    def options_of(self, call: Call) -> dict[str, Any]:
        """Return the options of a call that is about to be published."""
        if not self.is_there or call.name == "plain" or self.world.choice.random() < 0.4:
            return {}
        if self.world.choice.random() < 0.2:
            # As nobody is there it goes to its usual queue, where all may run it.
            self.world.note(f"{call.nonce} is for nobody first, and then for all")
            return {"prefer_workers": _NOBODY}
        self._only[call.nonce] = ODD
        self.world.note(f"{call.nonce} is for {ODD}")
        return {"only_workers": ODD}

    def act(self) -> None:
        """Somebody wants several workers to run a task, each of them once."""
        world, choice = self.world, self.world.choice
        # Who has died counts for a while: with its successor there are more than there will be.
        all_ = (2, 2, 2) if "renamed" in world.climate.kinds else (2, 2, "all", ODD)
        name, where = choice.choice(_RUN), choice.choice(all_)
        nonce = f"r{len(self._runs) + 1}"
        call = world.observer.planned(nonce, nonce, name, "x")
        if call.plan in ("replace", "send_back"):
            call.plan = "ok"
        run = self._runs[nonce] = Run(call)
        if where == ODD:
            self._only[nonce] = ODD
        world.note(f"{nonce}: {name} on {where} {call.plan}")

        def publish() -> None:
            world.observer.began(call)
            try:
                found = world.app.tasks[name].run_on(where, args=(nonce, "x"))
            except Exception as exc:
                world.note(f"{nonce} is refused: {exc!r:.80}")
            else:
                run.ids = [str(one.id) for one in found.results]
                world.note(f"{nonce} is accepted as {' '.join(run.ids)}")
                for task_id in run.ids:
                    self._member(run, task_id).is_accepted = True
            world.observer.answered(call)

        world.schedule.start(world.process(f"publisher {nonce}"), "call", publish)

    def queues(self) -> list[str]:
        """Return the queues in which messages may be."""
        if not self.is_there:
            return [QUEUE]
        broker = self.world.stage.brokers[self.world.climate.is_apart]
        return [QUEUE, *sorted(key.decode() for key in broker.keys(f"*{OWN}"))]

    def pausable(self) -> list[str]:
        """Return the queues that an operator may pause."""
        up = [host for host in self.world.hosts if host.is_up and host.is_ready]
        own = [one for host in up for one in host.queues if one != QUEUE]
        return [QUEUE, *own] if self.is_there else [QUEUE]

    def is_of_run(self, task_id: str) -> bool:
        """Whether a task is a member of a run."""
        calls = self.world.observer.calls.values()
        return any("/" in one.nonce for one in calls if one.task_id == task_id)

    # -- what is promised

    def call_of(self, nonce: str, task_id: str) -> Call:
        """Return the call that a body is of."""
        run = self._runs.get(nonce)
        return self.world.observer.calls[nonce] if run is None else self._member(run, task_id)

    def _member(self, run: Run, task_id: str) -> Call:
        calls, nonce = self.world.observer.calls, f"{run.call.nonce}/{task_id}"
        if nonce not in calls:
            # Its retries carry this nonce.
            calls[nonce] = replace(
                run.call, nonce=nonce, task_id=task_id, answered_ms=self.world.schedule.now_ms,
                answered_with=task_id, is_second=False, may_be_second=False, bodies=[], members=[],
            )  # fmt: skip
        return calls[nonce]  # type: ignore[no-any-return]

    def check_begin(self, body: Body) -> str:
        """Return what is wrong with a body that begins."""
        if not self.is_there:
            return ""
        nonce, node = body.call.nonce.partition("/")[0], body.node
        only = self._only.get(nonce)
        if only is not None and not fnmatchcase(node, only):
            return f"{body.call} begins as {body}, on {node}: it is for {only}"
        return ""

    def check_runs(self) -> str:
        """Return which run has not had a worker of its own for each member that succeeded."""
        calls = self.world.observer.calls
        for run in self._runs.values():
            members = [calls[f"{run.call.nonce}/{one}"] for one in run.ids]
            # What the server forgot, and a letter of a run that is forgotten, is bound no more.
            if any(one.is_lost or one.replays for one in members):
                continue
            # One that came late ended too, and changed nothing.
            ended = [{one.node for one in m.bodies if one.how == "done"} for m in members]
            ended = [one for one in ended if one]
            if not any(len(set(one)) == len(one) for one in product(*ended)):
                return f"{run.call.nonce} has ended on {ended}: not on as many workers"
        return ""
