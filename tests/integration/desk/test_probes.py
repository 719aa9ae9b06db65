"""Probes of real workers, that stand, die, end, and are cut off."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

from celery_reliable_probe import problems
from tests.integration.conftest import SOON, Project
from tests.support.waiting import wait_for

#: What a worker said longer ago counts no more.  It says it once a second.
STALE_SECONDS = 6.0


def test_who_lives_and_who_takes_work(project: Project, tmp_path: Path) -> None:
    folder = tmp_path / "probes"
    probed = project.with_settings(reliable={**SOON, "PROBE_DIRECTORY": str(folder)})
    workers = probed.start_workers("one", "two")
    names = {path.name.partition("@")[0]: path.name.partition(".")[0] for path in folder.iterdir()}

    def why(kind: str, *workers: str) -> list[str]:
        return problems(kind, str(folder), [names[one] for one in workers], STALE_SECONDS)

    def soon(is_so: Callable[[], bool], what: str) -> None:
        wait_for(is_so, 20, what)

    assert {one.partition("@")[0] for one in names.values()} == {"one", "two"}
    soon(lambda: not why("readyz", "one", "two"), "both are ready")
    assert why("livez") == []

    # One of two stands.
    workers["two"].signal_main(signal.SIGSTOP)
    soon(lambda: len(why("livez", "two")) == 1, "it is not alive")
    assert why("livez", "one") == []
    assert len(why("livez")) == 1
    workers["two"].signal_main(signal.SIGCONT)
    soon(lambda: not why("livez"), "it is alive again")

    # One of two is killed, and leaves its file.
    workers["two"].kill_group()
    assert "no process" in why("livez", "two")[0]
    assert why("livez") == []

    # The server is away for a moment.
    project.redis.stop()
    soon(lambda: bool(why("readyz")), "it is not ready")
    assert why("livez") == []
    project.redis.start()
    soon(lambda: not why("readyz"), "it is ready again")

    # An operator lets it consume nothing.
    def tell(command: str) -> None:
        probed.app.control.broadcast(command, arguments={"queue": "celery"})

    tell("cancel_consumer")
    soon(lambda: bool(why("readyz")), "it is not ready")
    assert why("livez") == []
    tell("add_consumer")
    soon(lambda: not why("readyz"), "it is ready again")

    # It ends, and finishes what it runs.
    held = probed.send("gate", "door")
    project.effects.run_of(held.id)
    workers["one"].signal_main(signal.SIGTERM)
    soon(lambda: bool(why("readyz")), "it takes nothing any more")
    assert why("livez") == []
    project.effects.open_gate("door")
    assert workers["one"].wait_until_ended() == 0
    assert "no process" in why("livez")[0]
    # What the killed one left.
    assert [path.name.partition("@")[0] for path in folder.glob("*.json")] == ["two"]
