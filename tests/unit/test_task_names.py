"""What a task's definition says besides options that cannot work: names that are taken, options
that were probably meant.
"""

from __future__ import annotations

import threading
import warnings
from typing import Any

import pytest
from celery import Celery, Task

from celery_reliable import ConfigurationError, ConfigurationWarning, ReliableTask
from celery_reliable.app import reliable_of
from celery_reliable.doctor import setup_of
from celery_reliable.options.definition import options_without_base
from celery_reliable.options.values import key_of


def new_app() -> Celery:
    return Celery("names", broker="redis://127.0.0.1:1", set_as_current=False)


def work(order: Any, copies: int = 1) -> None:
    """Do nothing."""


def define(body: Any = work, **options: Any) -> Any:
    kept = {"base": ReliableTask, "lazy": False, "shared": False} | options
    return new_app().task(body, name="app.work", **kept)


def defined(**members: Any) -> Any:
    """A task of a class that somebody wrote."""
    members.setdefault("run", lambda self, order, copies=1: None)
    cls = type("Work", (ReliableTask,), {"name": "app.work", **members})
    return new_app().register_task(cls())


# object_id


def test_what_a_body_assigns_to_its_task_is_no_option() -> None:
    task = define(
        object_id="order", unique="queued", once_for_seconds=5, max_losses=1, dead_letter=False
    )
    expected = key_of(task, ["a"], {})

    # As bodies do with the name that suggests itself; one instance serves all executions.
    task.object_id, task.max_losses, task.is_reliable = "something else", "many", None

    assert key_of(task, ["a"], {}) == expected


# Names that are taken


@pytest.mark.parametrize("name", ["attempt", "is_reliable"])
@pytest.mark.parametrize("value", [0, property(lambda self: 0)])
def test_an_attribute_that_would_disarm_something_is_refused(name: str, value: Any) -> None:
    for define_task in (define, defined):
        with pytest.raises(ConfigurationError) as caught:
            define_task(**{name: value})
        (problem,) = caught.value.problems
        assert f"Task app.work has {name!r} of its own" in problem
        assert "another name" in problem


@pytest.mark.parametrize("name", ["attempt", "touch"])
def test_what_is_assigned_to_a_task_hides_the_name_and_may_be_deleted(name: str) -> None:
    task = define()
    before = getattr(task, name)

    setattr(task, name, 5)
    assert getattr(task, name) == 5
    delattr(task, name)

    assert getattr(task, name) == before


# What was probably meant


@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [
        ("objectid", "order", "object_id"),
        ("time_to_run", 3, "time_to_run_seconds"),
    ],
)
def test_a_misspelt_option_is_told_with_the_near_name(name: str, value: Any, meant: str) -> None:
    with pytest.warns(ConfigurationWarning) as caught:
        define(**{name: value})

    (warning,) = caught
    assert f"Task app.work says {name}={value!r}" in str(warning.message)
    assert f"Did you mean {meant!r}?" in str(warning.message)


class Own:
    """What somebody has in his classes."""

    object_ids = ("a", "b")
    max_loss = 0.5
    uniques = frozenset()
    dead_letters = ()
    attempts = 3
    model = "documents.Document"
    lock = threading.Lock()

    def objectid(self) -> str:
        return "seven"


def test_nobody_is_annoyed_about_his_own_names() -> None:
    own = {name: value for name, value in vars(Own).items() if not name.startswith("__")}
    del own["objectid"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        defined(**own)
        define(
            unique_on=["order"],
            lock_expiry=10,
            queue_once=True,
            retries=3,
            label="x",
            description="dead",
            name_of_object="y",
            autoretry_for=(ValueError,),
        )


def test_options_of_ours_on_a_task_of_another_base_are_seen() -> None:
    plain = define(base=Task, object_id="order", max_losses=3, unique="queued")
    assert options_without_base(type(plain)) == ["object_id", "unique", "max_losses"]

    class Theirs(Task):
        name = "app.theirs"
        object_id = "order"
        dead_letter = True

    (task,) = (one for one in setup_of(reliable_of(plain.app)).tasks if one.name == "app.work")
    assert set(task.idle_options) == {"object_id", "unique", "max_losses"}
    # Somebody's own, by the place where it stands or by its value.
    assert not options_without_base(Theirs)
    assert not options_without_base(type(define(base=Task, unique=("order",), object_id=7)))
    assert not options_without_base(type(define(base=Theirs)))


def test_an_early_acknowledgement_is_refused_with_the_ways_out() -> None:
    with pytest.raises(ConfigurationError) as caught:
        define(acks_late=False)

    (problem,) = caught.value.problems
    assert "acks_late=False of task app.work" in problem
    assert "max_losses=0" in problem
