"""What a task and a call may say: what cannot work is refused with its name and value."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery, Task
from celery.worker.request import Request

from celery_reliable import ConfigurationError, ConfigurationWarning, ReliableTask
from celery_reliable.app import reliable_of
from celery_reliable.doctor import setup_of
from celery_reliable.leases import matches
from celery_reliable.options import CALL, call_of, task_ref
from celery_reliable.settings import MAX_SECONDS
from celery_reliable.worker.request import ReliableRequest


class OwnRequest(Request):
    """What somebody had before the base was changed."""


class DerivedRequest(ReliableRequest):
    """What it takes."""


def work(document_id: int = 0) -> None:
    """Do nothing."""


def define(**options: Any) -> Any:
    app = Celery("options", broker="redis://127.0.0.1:1", set_as_current=False)
    kept = {"base": ReliableTask, "lazy": False, "shared": False} | options
    return app.task(work, name="app.work", **kept)


def problem_of(**options: Any) -> str:
    """What is wrong with the definition of a task."""
    with pytest.raises(ConfigurationError) as caught:
        define(**options)
    (problem,) = caught.value.problems
    return problem


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("time_to_run_seconds", "5"),
        ("time_to_run_seconds", 0.0004),
        ("time_to_run_seconds", float("nan")),
        ("max_losses", True),
        ("max_losses", -1),
        ("object_id", 7),
        ("on_conflict", "later"),
        ("at_most", 101),
        ("place", "queued"),
        ("once_for_seconds", 0),
        ("unique", "waiting"),
        ("dead_letter", "no"),
        ("only_workers", ("gpu", 3)),
        ("prefer_workers", ""),
        ("acks_late", False),
        ("Request", OwnRequest),
        ("Request", "tests.unit.test_task_options:NoSuchRequest"),
    ],
)
def test_an_option_that_cannot_work_is_refused(option: str, value: object) -> None:
    problem = problem_of(**{"object_id": "document_id", option: value})

    assert f"{option}={value!r} of task app.work " in problem
    assert problem.endswith(".")


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"on_conflict": "wait"}, "on_conflict"),
        ({"at_most": 3}, "at_most"),
        ({"unique": "queued"}, "unique"),
        ({"once_for_seconds": 5}, "once_for_seconds"),
        (
            {"object_id": "document_id", "on_conflict": "wait", "unique": "queued"},
            "on_conflict",
        ),
    ],
)
def test_options_that_make_no_sense_together_are_refused(
    options: dict[str, Any], wrong: str
) -> None:
    assert f"{wrong}={options[wrong]!r} of task app.work " in problem_of(**options)


@pytest.mark.parametrize(
    "options",
    [
        {"time_to_run_seconds": 5, "max_losses": 0, "dead_letter": False, "on_conflict": "fail"},
        {"object_id": "document_id", "unique": "queued", "once_for_seconds": 60},
        {"object_id": "document_id", "on_conflict": "wait", "once_for_seconds": 5},
        {"at_most": 1, "on_conflict": "wait", "place": "queued"},
        {"Request": "tests.unit.test_task_options:DerivedRequest"},
    ],
)
def test_what_can_work_is_taken(options: dict[str, Any]) -> None:
    task = define(**options)

    assert {name: getattr(task, name) for name in options} == options


@pytest.mark.parametrize("name", ["attempt", "is_reliable"])
def test_an_attribute_that_would_disarm_something_is_refused(name: str) -> None:
    assert f"Task app.work has {name!r} of its own" in problem_of(**{name: 0})


def test_a_misspelt_option_is_told_with_the_near_name() -> None:
    with pytest.warns(ConfigurationWarning, match=r"says objectid='order'.*mean 'object_id'\?"):
        define(objectid="order")
    with pytest.warns(ConfigurationWarning, match="an option of the task, and not of one call"):
        _call(define(), on_conflict="fail")


def test_options_of_ours_on_a_task_of_another_base_are_seen() -> None:
    plain = define(base=Task, object_id="order", max_losses=3, unique=("order",))

    (task,) = (one for one in setup_of(reliable_of(plain.app)).tasks if one.name == "app.work")

    # A value that is none of ours is somebody's own.
    assert set(task.idle_options) == {"object_id", "max_losses"}


def _call(task: Any, **options: Any) -> None:
    task.app.conf.task_always_eager = "if_exists" not in options
    task.apply_async(**options)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("time_to_run_seconds", 0),
        ("time_to_run_seconds", "5"),
        ("time_to_run_seconds", MAX_SECONDS + 1),
        ("max_losses", True),
        ("max_losses", 1001),
        ("at_most", 1.5),
    ],
)
def test_neither_a_call_nor_a_message_may_say_what_cannot_work(option: str, value: object) -> None:
    task = define(time_to_run_seconds=7, max_losses=2)
    with pytest.raises(ConfigurationError) as caught:
        _call(task, **{option: value})

    (problem,) = caught.value.problems
    assert f"{option}={value!r} of a call of task app.work is not " in problem
    headers = {CALL: {option: value, "more": 1}}
    assert not call_of(headers)
    ref = task_ref(task, "id", headers)
    assert (ref.time_to_run_ms, ref.max_losses) == (7000, 2)


@pytest.mark.parametrize(
    ("of_task", "of_call", "said"),
    [
        ({}, {"at_most": 3}, "no places"),
        ({}, {"task_id": "key", "if_exists": "skip"}, "'keep', 'replay_dead', 'refuse'"),
        ({}, {"if_exists": "keep"}, "without task_id"),
        (
            {"object_id": "document_id", "unique": "queued"},
            {"task_id": "key", "if_exists": "keep", "args": (1,)},
            "unique='queued'",
        ),
    ],
)
def test_a_call_says_nothing_that_its_task_cannot_keep(
    of_task: dict[str, Any], of_call: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigurationError, match=said):
        _call(define(**of_task), **of_call)


@pytest.mark.parametrize(
    ("pattern", "nodename", "is_meant"),
    [
        ("gpu-*", "gpu-1@host", True),
        ("gpu-*", "cpu@gpu-1", False),
        ("alpha@host", "alpha@other", False),
        ("alpha", "alpha@host", True),
        ("alpha", "alphabet@host", False),
        ("*@gpu-*", "w@gpu-7", True),
        ("Alpha", "alpha@host", False),
        ("", "alpha@host", False),
    ],
)
def test_a_pattern_is_about_the_name_and_one_with_an_at_about_the_host_too(
    pattern: str, nodename: str, is_meant: bool
) -> None:
    assert matches(pattern, nodename) is is_meant
