"""What is forked by the server of preloaded modules is what `python -m celery` would have been."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import pytest

from tests.integration.commands import entry_point_path
from tests.integration.conftest import Project
from tests.support import preloaded
from tests.support.processes import REPOSITORY, CeleryProcess

# An app that tells what it finds as it is loaded, and ends the process as Python does.
TELLING = """
import atexit, json, os, random, signal, sys, threading, uuid
from celery import Celery

app = Celery("telling")

def tell(name, what):
    with open(f"{os.environ['STOCK']}.{name}", "w") as file:
        json.dump(what, file)

tell("start", {
    "argv": sys.argv,
    "path": [entry for entry in sys.path if entry],
    "cwd": os.getcwd(),
    "environ": dict(os.environ),
    "session": os.getsid(0) == os.getpid() == os.getpgid(0),
    "signals": {number.name: str(signal.getsignal(number)).split(" at ")[0]
                for number in (signal.SIGINT, signal.SIGTERM, signal.SIGCHLD, signal.SIGPIPE)},
    "threads": [thread.name for thread in threading.enumerate()],
    "main": sys.modules["__main__"].__file__,
    "descriptors": sorted(os.readlink(f"/proc/self/fd/{number}").split(":")[0].split("/")[-1]
                          for number in os.listdir("/proc/self/fd")
                          if os.path.exists(f"/proc/self/fd/{number}")),
})
tell("random", [random.random(), uuid.uuid4().hex])
atexit.register(tell, "end", "ended")
print("out")
print("err", file=sys.stderr)
if os.environ["RELIABLE"] != "goes on":
    sys.exit(int(os.environ["RELIABLE"]))
import time; time.sleep(600)
"""


@dataclass(frozen=True)
class Told:
    """What one process told of itself."""

    argv: list[str]
    path: list[str]
    cwd: str
    environ: dict[str, str]
    session: bool
    signals: dict[str, str]
    threads: list[str]
    main: str
    descriptors: list[str]


@pytest.fixture(autouse=True)
def forking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TESTS_FROM_SCRATCH", raising=False)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "telling.py").write_text(TELLING)
    return tmp_path


def start(folder: Path, name: str, *, code: str = "7") -> CeleryProcess:
    environ = {
        **os.environ,
        "STOCK": str(folder / name),
        "RELIABLE": code,
        "PYTHONPATH": os.pathsep.join(filter(None, [str(folder), entry_point_path(folder)])),
    }
    return CeleryProcess(
        name,
        ["report"],
        app="telling",
        environ=environ,
        log_path=folder / "log",
        is_ready=lambda: True,
    )


def told(folder: Path, name: str, part: str = "start") -> object:
    return json.loads((folder / f"{name}.{part}").read_text())


def anew(folder: Path, name: str, monkeypatch: pytest.MonkeyPatch) -> CeleryProcess:
    with monkeypatch.context() as patched:
        patched.setenv("TESTS_FROM_SCRATCH", "yes")
        return start(folder, name)


def test_it_finds_what_one_finds_that_starts_anew(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {"forked": start(folder, "forked"), "anew": anew(folder, "anew", monkeypatch)}
    found: dict[str, Mapping[str, object]] = {}
    for name, process in names.items():
        assert process.wait_until_ended() == 7, process.log_text()
        assert told(folder, name, "end") == "ended", "its hooks of the interpreter's end"
        start_of = told(folder, name)
        assert isinstance(start_of, dict)
        for changing in ("STOCK", "TESTS_FROM_SCRATCH"):
            start_of["environ"].pop(changing, None)
        found[name] = asdict(Told(**start_of))
    assert found["forked"] == found["anew"]
    assert (folder / "log").read_text().count("out\nerr\n") == 2


def test_the_workers_of_the_suite_are_forked(project: Project) -> None:
    # One more variable that nobody knows here would make each of them import all anew, unseen.
    assert preloaded.can_be_forked(["worker"], project.environ("ready", {}), REPOSITORY)


@pytest.mark.parametrize(
    ("arguments", "environ", "tree"),
    [
        (["worker", "-P", "gevent"], {}, REPOSITORY),
        (["worker"], {"REMAP_SIGTERM": "SIGQUIT"}, REPOSITORY),
        (["worker"], {"LD_PRELOAD": "libfaketime.so.1"}, REPOSITORY),
        (["worker"], {"PYTHONHASHSEED": "0"}, REPOSITORY),
        (["worker"], {}, Path(sys.prefix)),
    ],
)
def test_what_is_settled_by_imports_starts_anew(
    arguments: list[str], environ: dict[str, str], tree: Path
) -> None:
    assert preloaded.can_be_forked(["worker"], os.environ, REPOSITORY)
    assert not preloaded.can_be_forked(arguments, {**os.environ, **environ}, tree)
