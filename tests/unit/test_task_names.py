"""What a task's definition says besides options that cannot work: names that are taken, options
that were probably meant.
"""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable
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


class Shop:
    prefix = "shop"

    def key(self, order: Any, copies: int) -> Any:
        return (self.prefix, order["id"])

    def __call__(self, order: Any, copies: int) -> Any:
        return (self.prefix, order["id"])


def key_with(prefix: str, order: Any, copies: int) -> Any:
    return (prefix, order["id"])


def take_shop(order: Any, copies: int) -> Any:
    return ("shop", order["id"])


def of_class(cls: Any, order: Any, copies: int) -> Any:
    assert issubclass(cls, ReliableTask)
    return ("shop", order["id"])


def of_task(self: Any, order: Any, copies: int) -> Any:
    assert self.name == "app.work"
    return ("shop", order["id"])


SPECS: dict[str, Any] = {
    "function": take_shop,
    "lambda": lambda order, copies: ("shop", order["id"]),
    "other names": lambda one, *others: ("shop", one["id"]),
    "partial": functools.partial(key_with, "shop"),
    "wrapped": functools.wraps(take_shop)(lambda *args: take_shop(*args)),
    "bound method": Shop().key,
    "object": Shop(),
    "static method": staticmethod(lambda order, copies: ("shop", order["id"])),
    "class method": classmethod(of_class),
    "method": of_task,
}


@pytest.mark.parametrize("define_task", [define, defined])
@pytest.mark.parametrize("kind", SPECS)
def test_a_callable_gets_the_calls_arguments(kind: str, define_task: Callable[..., Any]) -> None:
    task = define_task(object_id=SPECS[kind])
    expected = key_of(define(object_id=lambda *args: ("shop", 7)), [None], {})

    assert key_of(task, [{"id": 7}], {}) == expected
    assert key_of(task, [], {"copies": 2, "order": {"id": 7}}) == expected
    assert key_of(task, [{"id": 8}], {}) != expected


def test_a_callable_that_cannot_take_the_arguments_is_refused_at_once() -> None:
    for define_task in (define, defined):
        with pytest.raises(ConfigurationError, match=r"'app\.work'.*object_id callable takes"):
            define_task(object_id=lambda order: order["id"])


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
@pytest.mark.parametrize("value", [0, property(lambda self: 0), lambda self: 0])
def test_an_attribute_that_would_disarm_something_is_refused(name: str, value: Any) -> None:
    for define_task in (define, defined):
        with pytest.raises(ConfigurationError) as caught:
            define_task(**{name: value})
        (problem,) = caught.value.problems
        assert f"Task app.work has {name!r} of its own" in problem
        assert "another name" in problem


@pytest.mark.parametrize("name", ["touch", "seconds_left"])
def test_names_of_a_time_to_run_are_free_without_one(name: str) -> None:
    assert getattr(define(**{name: 3}), name) == 3
    with pytest.raises(ConfigurationError, match=name):
        define(time_to_run_seconds=5, **{name: 3})


def test_a_base_of_the_users_may_not_hide_them_either() -> None:
    class Base(ReliableTask):
        abstract = True
        attempt = 0

    with pytest.raises(ConfigurationError, match="'attempt'"):
        define(base=Base)


@pytest.mark.parametrize("name", ["attempt", "seconds_left", "touch"])
def test_what_is_assigned_to_a_task_hides_the_name_and_may_be_deleted(name: str) -> None:
    task = define()
    before = getattr(task, name)

    setattr(task, name, 5)
    assert getattr(task, name) == 5
    delattr(task, name)

    assert getattr(task, name) == before


def test_on_bound_is_the_users() -> None:
    """What is done when a task is bound does not need a call of super."""
    seen = []

    class Base(ReliableTask):
        abstract = True

        @classmethod
        def on_bound(cls, app: Any) -> None:
            seen.append(cls.name)

    task = define(base=Base)
    assert seen == ["app.work"]
    assert task.app.steps["worker"] == {"celery_reliable.worker:WorkerStep"}
    with pytest.raises(ConfigurationError, match="max_losses"):
        define(base=Base, max_losses=-1)

    class Named(Base):
        name = "app.named"
        max_losses = -1

    with pytest.raises(ConfigurationError, match="max_losses"):
        new_app().register_task(Named())


def test_a_backend_of_a_tasks_own_is_where_ours_finds_it() -> None:
    backend = new_app().backend

    for task in (define(backend=backend), defined(backend=backend)):
        assert task.backend is backend
        assert isinstance(vars(ReliableTask)["backend"], property)
        assert "backend" not in vars(type(task))


# What was probably meant


@pytest.mark.parametrize(
    ("name", "value", "meant"),
    [
        ("objectid", "order", "object_id"),
        ("object_ids", "order", "object_id"),
        ("onconflict", "skip", "on_conflict"),
        ("max_loses", 3, "max_losses"),
        ("max_loss", 3, "max_losses"),
        ("time_to_run", 3, "time_to_run_seconds"),
        ("once_for", 3, "once_for_seconds"),
        ("dead_letters", False, "dead_letter"),
    ],
)
def test_a_misspelt_option_is_told_with_the_near_name(name: str, value: Any, meant: str) -> None:
    with pytest.warns(ConfigurationWarning) as caught:
        define(**{name: value})

    (warning,) = caught
    assert f"Task app.work says {name}={value!r}" in str(warning.message)
    assert f"Did you mean {meant!r}?" in str(warning.message)


def test_one_in_a_class_is_told_where_its_value_would_fit() -> None:
    with pytest.warns(ConfigurationWarning, match="object_id"):
        defined(objectid="order")


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


def test_a_time_to_run_above_the_limit_is_told() -> None:
    with pytest.warns(ConfigurationWarning, match=r"time_to_run_seconds=60 with a time_limit of 5"):
        define(time_to_run_seconds=60, time_limit=5)
    define(time_to_run_seconds=4, time_limit=5)


def test_an_early_acknowledgement_is_refused_with_the_ways_out() -> None:
    with pytest.raises(ConfigurationError) as caught:
        define(acks_late=False)

    (problem,) = caught.value.problems
    assert "acks_late=False of task app.work" in problem
    assert "max_losses=0" in problem
