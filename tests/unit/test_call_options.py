"""What one call may say in place of its task's options, and what is believed of a message."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery

from celery_reliable import ReliableTask
from celery_reliable.exceptions import ConfigurationError, ConfigurationWarning
from celery_reliable.model import Room
from celery_reliable.options import CALL, call_of, room_of, take_call, task_ref
from celery_reliable.settings import MAX_SECONDS


def work() -> None:
    """Do nothing."""


def define(**options: Any) -> Any:
    app = Celery("calls", set_as_current=False)
    app.conf.task_always_eager = True
    return app.task(work, name="app.work", base=ReliableTask, lazy=False, shared=False, **options)


WRONG = [
    *(("time_to_run_seconds", value) for value in (0, 0.0001, True, "5", float("nan"))),
    ("time_to_run_seconds", MAX_SECONDS + 1),
    *(("max_losses", value) for value in (-1, 1.0, True, "3", 1001)),
    *(("at_most", value) for value in (0, 1.5, True, "3", 101)),
]


@pytest.mark.parametrize(("option", "value"), WRONG)
def test_a_call_that_cannot_work_is_refused_with_its_name_and_value(option, value):
    task = define()
    with pytest.raises(ConfigurationError) as caught:
        task.apply_async(**{option: value})

    (problem,) = caught.value.problems
    assert f"{option}={value!r} of a call of task app.work is not " in problem
    assert problem.endswith(".")
    with pytest.raises(ConfigurationError):
        task.s().set(**{option: value}).apply_async()


@pytest.mark.parametrize(("option", "value"), WRONG)
def test_a_message_may_say_no_more_than_a_call(option, value):
    task = define(time_to_run_seconds=7, max_losses=2)
    headers = {CALL: {option: value, "more": 1}}

    assert not call_of(headers)
    ref = task_ref(task, "id", headers)
    assert (ref.time_to_run_ms, ref.max_losses) == (7000, 2)


def test_what_a_call_says_counts_and_what_it_does_not_say_is_its_tasks():
    task = define(time_to_run_seconds=7, max_losses=2)
    options: dict[str, Any] = {"max_losses": 0, "time_to_run_seconds": None, "countdown": 1}

    take_call("app.work", options)

    assert options == {"countdown": 1, "headers": {CALL: {"max_losses": 0}}}
    ref = task_ref(task, "id", options["headers"])
    assert (ref.time_to_run_ms, ref.max_losses) == (7000, 0)


def test_what_a_retry_says_takes_the_place_of_what_its_call_said():
    of_the_call = {"own": 1, CALL: {"max_losses": 5, "time_to_run_seconds": 3}}
    options: dict[str, Any] = {"headers": of_the_call, "max_losses": 1}
    take_call("app.work", options)
    told = {"max_losses": 1, "time_to_run_seconds": 3}
    assert options["headers"] == {"own": 1, CALL: told}
    assert of_the_call[CALL]["max_losses"] == 5


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("time_to_run_second", "Did you mean 'time_to_run_seconds'?"),
        ("on_conflict", "an option of the task, and not of one call"),
    ],
)
def test_what_is_nearly_an_option_of_a_call_is_told_of(option, said):
    with pytest.warns(ConfigurationWarning) as told:
        define().apply_async(**{option: 3})
    (one,) = told
    assert f"A call of task app.work says {option}=..., " in str(one.message)
    assert said in str(one.message)
    assert one.filename == __file__


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({}, "no places"),
        (
            {"object_id": "shop", "unique": "queued", "at_most": 1, "on_conflict": "fail"},
            "one place",
        ),
    ],
)
def test_a_call_has_no_more_places_than_its_task_could(options, said):
    app = Celery("calls", set_as_current=False)
    task = app.task(
        of_shop, name="app.shop", base=ReliableTask, lazy=False, shared=False, **options
    )
    with pytest.raises(ConfigurationError, match=said) as caught:
        task.apply_async((1,), at_most=3)
    assert "at_most=3 of a call of task app.shop" in caught.value.problems[0]
    # Who lies in a message gets no more.
    assert room_of(task, "object", {CALL: {"at_most": 3}}) in (None, Room("object", 1))


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"task_id": "key", "if_exists": "skip"}, "is not one of 'keep', 'replay_dead', 'refuse'"),
        ({"if_exists": "keep"}, "without task_id"),
    ],
)
def test_if_exists_is_for_a_call_with_an_id(options, said):
    task = define()
    task.app.conf.task_always_eager = False
    with pytest.raises(ConfigurationError, match=said):
        task.apply_async(**options)


def test_the_key_of_a_unique_task_is_its_object():
    app = Celery("calls", set_as_current=False)
    own = {"object_id": "shop", "unique": "queued", "base": ReliableTask}
    task = app.task(of_shop, name="app.shop", lazy=False, shared=False, **own)
    with pytest.raises(ConfigurationError, match="unique='queued'"):
        task.apply_async((1,), task_id="key", if_exists="keep")


def of_shop(shop: int) -> None:
    """Do nothing."""
