"""Runs: a worker is given to one member only, whoever asks, and nothing is kept for ever."""

from __future__ import annotations

from celery_reliable.ledger import Runs
from celery_reliable.ledger.answers.tasks import Changed, Ended, Postponed
from tests.ledger.scene import Scene

FAR_MS = 3_600_000


def begin(scene: Scene, *members: str) -> Runs:
    runs = scene.ledger.runs
    runs.begin("run", members, name="app.work", only=("gpu-*",), due_in_ms=0)
    return runs


def workers(scene: Scene) -> dict[str, tuple[str, ...]]:
    found = scene.ledger.runs.find("run")
    assert found is not None
    return found.members


def test_a_worker_is_given_to_one_member_only(scene: Scene) -> None:
    runs = begin(scene, "one", "two", "three")

    given = [runs.assign("run", member, ["a", "b"]) for member in ("one", "two", "three")]

    assert given == ["a", "b", ""]
    # The same again: it has one.
    assert runs.assign("run", "one", ["a", "b"]) == "a"
    assert workers(scene) == {"one": ("a",), "two": ("b",), "three": ()}


def test_a_worker_that_a_member_had_is_nobodys_until_it_is_certain_that_it_begins_elsewhere(
    scene: Scene,
) -> None:
    runs = begin(scene, "one", "two")
    runs.assign("run", "one", ["a"])

    assert runs.assign("run", "one", ["b"]) == "b"

    assert workers(scene)["one"] == ("b", "a")
    assert runs.assign("run", "two", ["a", "b"]) == ""
    runs.confirm("run", "one", "b")
    assert runs.assign("run", "two", ["a", "b"]) == "a"
    runs.confirm("run", "one", "")
    assert workers(scene) == {"one": (), "two": ("a",)}


def test_nobody_is_given_anything_of_a_run_that_is_forgotten(scene: Scene) -> None:
    runs = scene.ledger.runs

    assert runs.assign("run", "one", ["a"]) is None
    runs.confirm("run", "one", "a")

    assert runs.find("run") is None
    run = begin(scene, "one").find("run")
    assert run is not None
    assert (run.name, run.only) == ("app.work", ("gpu-*",))
    assert 0 <= scene.workers.time_ms() - run.begun_ms < 60_000


def test_a_run_that_is_over_is_forgotten_after_a_while(scene: Scene) -> None:
    runs = begin(scene, "one")
    ((name, due_ms),) = runs.due(9)

    assert runs.look_later(name, due_ms, due_in_ms=FAR_MS) == Postponed()
    assert runs.due(9) == []
    assert runs.end(name, due_ms, keep_ms=FAR_MS) == Changed()
    keys = scene.ledger.keys
    later_ms = f"{scene.client.zscore(keys.runs, name):.0f}"
    assert runs.end(name, later_ms, keep_ms=FAR_MS) == Ended()

    assert not scene.client.exists(keys.runs)
    assert FAR_MS - 60_000 < scene.client.pttl(keys.run("run")) <= FAR_MS


def test_a_run_of_which_a_member_is_published_later_is_not_forgotten(scene: Scene) -> None:
    runs = begin(scene, "one", "two")
    ((name, due_ms),) = runs.due(9)
    # None of its members has a record yet: its publisher is slow.
    runs.end(name, due_ms, keep_ms=FAR_MS)

    assert runs.assign("run", "one", ["a"]) == "a"

    assert scene.client.pttl(scene.ledger.keys.run("run")) > 1000 * FAR_MS
    ((name, due_ms),) = runs.due(9)
    assert runs.assign("run", "two", ["a"]) == ""
    assert runs.end(name, due_ms, keep_ms=FAR_MS) == Ended()
    # Who waits for a worker is looked at again and again.
    assert runs.assign("run", "two", ["a"]) == ""
    assert [one for one, _ in runs.due(9)] == ["run"]
