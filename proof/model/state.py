"""What the model knows: tasks, workers, locks; and how a rule reads and changes it.

A state is a mapping of short names (keys without their namespace) to values that never change, so
that states can be compared, hashed and kept.  A rule sees a state through a View.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

__all__ = [
    "ANY",
    "REST",
    "Call",
    "Lock",
    "Outcome",
    "Reply",
    "Task",
    "Unknown",
    "View",
    "Worker",
    "short",
]

_SCRIPTS = Path(__file__).parents[2] / "celery_reliable" / "ledger" / "lua"

T = TypeVar("T")
State = Mapping[str, Any]

#: In a reply: whatever stands there.
ANY = object()
#: At the end of a reply: whatever follows.
REST = object()
Reply = tuple[Any, ...]

#: A time that ran out so recently, or is about to, may be seen either way, in ms.
BLUR_MS = 50


class Call(NamedTuple):
    """One call of a script.  Keys are short names; *now_us* is the server's clock."""

    name: str
    keys: tuple[str, ...]
    args: tuple[str, ...]
    now_us: int = 0
    run_id: str = "run"


class Task(NamedTuple):
    """A record.  `due` is when somebody must look, in ms; None: nobody has to."""

    state: str
    epoch: str = ""
    message: str = ""
    name: str = ""
    #: The name by which the id was published, if what replaced its task has another.
    published_as: str = ""
    attempt: int | None = None
    token: str = ""
    owner: str = ""
    losses: int = 0
    max_losses: int | None = None
    due: float | None = None
    #: The tokens of attempts that are over.
    spent: str = ""
    #: The claim that its worker has still to stop, and that worker.
    stopping: str = ""
    stopping_on: str = ""
    revoked: bool = False
    has_history: bool = False
    buried_ms: str = ""
    sealed: bool = False
    read_by: str = ""
    #: Which canvas may publish the id.
    heir: str = ""
    concluding: str = ""
    #: Guilt: it ran in workers that died.
    suspect: str = ""
    spared: int = 0
    object: str = ""
    waiting_for: str = ""
    places: str = ""
    own_places: bool = False
    look_ms: str = ""
    list: str = ""
    reserved: str = ""
    unsent: bool = False
    resends: int = 0
    used: bool = False
    published_ms: float | None = None

    @property
    def called_off(self) -> bool:
        """Whether it has ended, but for an attempt that is still to be stopped."""
        return self.waiting_for == "stop"

    @property
    def is_bound(self) -> bool:
        """Whether it waits, and not to be run itself."""
        return self.waiting_for in ("stop", "canvas")

    def unowned(self) -> Task:
        """The same, with no attempt of its own."""
        return self._replace(token="", owner="", heir="", concluding="")

    def told_anew(self) -> Task:
        """The same as another publication: guilt and what was said of the one before are gone."""
        return self._replace(suspect="", spared=0, sealed=False, read_by="")


class Worker(NamedTuple):
    """A worker that has registered.  `lease_until` in ms."""

    state: str
    renewals: int = 0
    connection: str = ""
    run_id: str = ""
    lease_ms: float = 0
    lease_until: float = 0
    missing_ms: float | None = None
    missing_renewals: str = ""
    #: The suspect that it runs: its id and claim.
    suspect: str = ""
    suspect_claim: str = ""
    #: Whom its death was put down to.
    verdict: str = ""
    charged: str = ""


class Lock(NamedTuple):
    """A key that may expire: an object's lock, what a sender has published last, a rate."""

    value: str
    until_ms: float | None = None


class Unknown(Exception):
    """The rule asks for something that is not known, as the trace began later."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.name = name


class Outcome(NamedTuple):
    """What a call may answer, and what it changes: by name; None: nothing is there any more."""

    reply: Reply
    changes: dict[str, Any]


@cache
def _positions(script: str) -> dict[tuple[str, str], int]:
    """Return where the keys and arguments stand that a script's header lists."""
    found: dict[tuple[str, str], int] = {}
    text = (_SCRIPTS / f"{script}.lua").read_text("utf-8").partition("\n]]\n")[0]
    for kind in ("KEYS", "ARGV"):
        names = re.findall(rf"^{kind}\.(\w+)", text, re.MULTILINE)
        found |= {(kind, name): at for at, name in enumerate(names)}
    return found


class View:
    """A state as one call sees it, with the changes of that call.

    *without* names rules that are left out: an ablation.
    """

    def __init__(
        self,
        state: State,
        call: Call,
        without: frozenset[str] = frozenset(),
        choices: Sequence[int] = (),
        known: Callable[[str], bool] = lambda name: True,
    ) -> None:
        self.state = state
        self.call = call
        self.changes: dict[str, Any] = {}
        #: By which keys expire.
        self.server_ms = call.now_us // 1000
        self._without = without
        self._choices = list(choices)
        self.made: list[int] = []
        self.widths: list[int] = []
        self._known = known

    @property
    def now_us(self) -> int:
        """The ledger's time in microseconds."""
        offset_ms, latest_ms = self.get("clock", (0, 0))
        return max(self.call.now_us + int(offset_ms) * 1000, int(latest_ms) * 1000)

    @property
    def now(self) -> int:
        """The ledger's time in ms."""
        return self.now_us // 1000

    def keep_clock(self) -> None:
        """Note what the ledger's clock shows."""
        self.put("clock", (float(self.now - self.server_ms), float(self.now)))

    def holds(self, rule: str) -> bool:
        """Tell whether this rule is one of the model's, or is left out."""
        return rule not in self._without

    def either(self, *options: T) -> T:
        """Return one of *options*: each of them is allowed."""
        at = len(self.made)
        chosen = self._choices[at] if at < len(self._choices) else 0
        self.made.append(chosen)
        self.widths.append(len(options))
        return options[chosen]

    def key(self, name: str) -> str:
        """Return the key that the script's header calls so; "none" if it was not given."""
        return next(iter(self.keys(name)), "none")

    def keys(self, name: str) -> tuple[str, ...]:
        """Return the key of that name and all behind it.  The first of all is the namespace's."""
        return self.call.keys[1 + _positions(self.call.name)["KEYS", name] :]

    def arg(self, name: str) -> str:
        """Return the argument that the script's header calls so; empty if it was not given."""
        return next(iter(self.args(name)), "")

    def args(self, name: str) -> tuple[str, ...]:
        """Return the argument of that name and all behind it."""
        return self.call.args[_positions(self.call.name)["ARGV", name] :]

    def number(self, name: str) -> float:
        """Return an argument as a number."""
        return float(self.arg(name) or 0)

    def get(self, name: str, default: Any = None) -> Any:
        """Return what is there under this short name."""
        if name in self.changes:
            found = self.changes[name]
            return default if found is None else found
        if name in self.state:
            return self.state[name]
        if not self._known(name):
            raise Unknown(name)
        return default

    def put(self, name: str, value: Any) -> None:
        """Change what is there; None removes it."""
        self.changes[name] = value

    def task(self) -> Task | None:
        """Return the record."""
        found: Task | None = self.get(self.key("record"))
        return found

    def worker(self, name: str) -> Worker | None:
        """Return a worker by its short name."""
        found: Worker | None = self.get(name)
        return found

    def pairs(self, name: str) -> dict[str, str]:
        """Return a small hash."""
        return dict(self.get(name, ()))

    def put_pairs(self, name: str, pairs: Mapping[str, str]) -> None:
        """Store a small hash."""
        self.put(name, tuple(sorted(pairs.items())) or None)

    def drop_pair(self, name: str, field: str) -> None:
        """Remove a field of a small hash."""
        pairs = self.pairs(name)
        if pairs.pop(field, None) is not None:
            self.put_pairs(name, pairs)

    def meta(self) -> dict[str, Any]:
        """Return what is known of the namespace as a whole."""
        return dict(self.get("meta", ()))

    def note_meta(self, **changes: Any) -> None:
        """Change some of it; None removes."""
        found = self.meta() | changes
        self.put("meta", tuple(sorted(item for item in found.items() if item[1] is not None)))

    def expiring(self, name: str) -> str | None:
        """Return the value of a key that may have expired."""
        found: Lock | None = self.get(name)
        if found is None:
            return None
        if found.until_ms is not None:
            left = found.until_ms - self.server_ms
            if left < -BLUR_MS or (left < BLUR_MS and not self.either(True, False)):
                return None
        return found.value

    def stand(self, line: str, task_id: str, score: float) -> None:
        """Put a task into a line, at its place, or have it change its place."""
        self.leave(line, task_id)
        in_line = [*self.get(line, ()), (score, task_id)]
        self.put(line, tuple(sorted(in_line, key=lambda one: (one[0], one[1].encode()))))

    def leave(self, line: str, task_id: str) -> bool:
        """Take a task out of a line; return whether it stood there."""
        stands = tuple(one for one in self.get(line, ()) if one[1] != task_id)
        if stands == self.get(line, ()):
            return False
        self.put(line, stands or None)
        return True

    def first(self, line: str) -> str:
        """Return who stands in a line first; empty for nobody."""
        return next((one[1] for one in self.get(line, ())), "")

    def wait_until(self, task_id: str, due: float) -> None:
        """Let a task wait for its moment."""
        self.keep_clock()
        self.stand("later", task_id, due)

    def look_by(self, name: str, due: float) -> None:
        """Have somebody look at a record by this time, if somebody has to look at all."""
        task: Task | None = self.get(name)
        if task is not None and task.due is not None:
            self.put(name, task._replace(due=min(task.due, due)))

    def still_stopping(self, name: str) -> str:
        """Return the worker that has still to stop an attempt of a record; empty if there is none,
        or it is dead: the attempt is over then.
        """
        task: Task | None = self.get(name)
        if task is None or not task.stopping_on:
            return ""
        worker: Worker | None = self.get(f"worker:{task.stopping_on}")
        if worker is not None and worker.state == "alive" and self.holds("who lives is waited for"):
            return task.stopping_on
        return ""

    def tasks(self) -> Iterator[tuple[str, Task]]:
        """All records, by id."""
        for name in {*self.state, *self.changes}:
            if name.startswith("task:") and (found := self.get(name)) is not None:
                yield name[5:], found


def short(key: str) -> str:
    """Return the name of a key without its namespace."""
    _, brace, name = key.partition("}:")
    return name if brace else key
