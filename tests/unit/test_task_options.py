from __future__ import annotations

from typing import Any

import pytest
from celery import Celery
from celery.worker.request import Request

from celery_reliable import ReliableTask
from celery_reliable.exceptions import ConfigurationError
from celery_reliable.worker.request import ReliableRequest


class OwnRequest(Request):
    """What somebody had before the base was changed."""


class DerivedRequest(ReliableRequest):
    """What it takes."""


def work(document_id: int = 0) -> None:
    """Do nothing."""


def define(**options: Any) -> Any:
    app = Celery("options", set_as_current=False)
    return app.task(work, name="app.work", base=ReliableTask, lazy=False, shared=False, **options)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("time_to_run_seconds", "5"),
        ("time_to_run_seconds", 0),
        ("time_to_run_seconds", 0.0004),
        ("time_to_run_seconds", float("nan")),
        ("max_losses", True),
        ("object_id", 7),
        ("max_losses", -1),
        ("on_conflict", "later"),
        ("at_most", 0),
        ("at_most", 101),
        ("place", "queued"),
        ("once_for_seconds", "queued"),
        ("once_for_seconds", 0),
        ("unique", "waiting"),
        ("dead_letter", "no"),
        ("Request", OwnRequest),
        ("Request", "tests.unit.test_task_options:OwnRequest"),
        ("Request", "tests.unit.test_task_options:NoSuchRequest"),
    ],
)
def test_an_option_that_cannot_work_is_refused_with_its_name_and_value(option, value):
    with pytest.raises(ConfigurationError) as caught:
        define(**{"object_id": "document_id", option: value})

    (problem,) = caught.value.problems
    assert f"{option}={value!r} of task app.work " in problem
    assert problem.endswith(".")


@pytest.mark.parametrize(
    ("options", "wrong"),
    [
        ({"on_conflict": "wait"}, "on_conflict"),
        ({"at_most": 3}, "at_most"),
        (
            {"object_id": "document_id", "on_conflict": "wait", "unique": "queued"},
            "on_conflict",
        ),
        (
            {
                "object_id": "document_id",
                "on_conflict": "wait",
                "at_most": 2,
                "once_for_seconds": 5,
            },
            "at_most",
        ),
    ],
)
def test_options_of_places_that_make_no_sense_together_are_refused(options, wrong):
    with pytest.raises(ConfigurationError) as caught:
        define(**options)

    (problem,) = caught.value.problems
    assert f"{wrong}={options[wrong]!r} of task app.work is not of use with" in problem


@pytest.mark.parametrize(("option", "value"), [("unique", "queued"), ("once_for_seconds", 5)])
def test_what_is_about_an_object_needs_one(option, value):
    with pytest.raises(ConfigurationError) as caught:
        define(**{option: value})

    (problem,) = caught.value.problems
    assert f"{option}={value!r} of task app.work " in problem
    assert "object_id" in problem
    assert define(object_id="document_id", **{option: value})


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"time_to_run_seconds": 5, "max_losses": 0, "dead_letter": False, "on_conflict": "fail"},
        {"object_id": "document_id", "unique": "queued", "once_for_seconds": 60},
        {"object_id": "document_id", "on_conflict": "wait"},
        {"at_most": 1, "on_conflict": "wait", "place": "queued"},
        {"object_id": "document_id", "on_conflict": "wait", "once_for_seconds": 5},
        {"Request": DerivedRequest},
        {"Request": "tests.unit.test_task_options:DerivedRequest"},
    ],
)
def test_what_can_work_is_taken(options):
    task = define(**options)

    assert {name: getattr(task, name) for name in options} == options
