"""What a task and a call may say: what cannot work is refused with its name and value."""

from __future__ import annotations

import enum
import inspect
import string
from typing import Any
from uuid import UUID

import pytest
from celery import Celery, Task
from celery.worker.request import Request
from hypothesis import given
from hypothesis import strategies as st

from celery_reliable import ConfigurationError, ConfigurationWarning, ReliableTask
from celery_reliable.app import reliable_of
from celery_reliable.doctor import setup_of
from celery_reliable.exceptions import ObjectIdError
from celery_reliable.leases import matches
from celery_reliable.options import CALL, call_of, task_ref
from celery_reliable.options.object_id import check_object_id_spec, object_key
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
        ({"on_conflict": "retry"}, "on_conflict"),
        (
            {"object_id": "document_id", "on_conflict": "wait", "place": "queued"}
            | {"unique": "queued"},
            "place",
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
        {"object_id": "document_id", "on_conflict": "retry", "unique": "queued"},
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


def test_a_message_without_headers_is_not_published() -> None:
    task = define()
    task.app.conf.task_protocol = 1
    with pytest.raises(ConfigurationError, match="task_protocol to 2"):
        task.delay()


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


# -- the key of an object: one for each object, whichever way its id came

A_UUID = UUID("12345678-1234-5678-1234-567812345678")

# Text that cannot be taken for a number or a UUID, so that equal means one object.
leaves = st.one_of(
    st.integers(),
    st.binary(),
    st.text(alphabet=string.ascii_letters + " ,()", min_size=1, max_size=8),
)
object_ids = st.recursive(leaves, lambda inner: st.lists(inner, max_size=4).map(tuple))


class Colour(enum.IntEnum):
    """An id of a number, whose own text is another one."""

    RED = 1


def key(object_id: object) -> str:
    return object_key("proj.charge", object_id)


@given(object_ids, object_ids)
def test_two_ids_share_a_key_only_when_they_are_equal(one: object, other: object) -> None:
    assert (key(one) == key(other)) == (one == other)
    assert object_key("proj.refund", one) != key(one)


def test_the_same_object_has_one_key_however_it_travelled() -> None:
    assert key(7) == key("7")
    assert key(A_UUID) == key(str(A_UUID))
    assert key(Colour.RED) == key(1)
    # Text that looks alike is not the same.
    assert key("7") != key("07")
    assert key("\ud800") != key("?")
    assert key(b"7") != key("7")


def test_a_key_is_the_same_for_ever() -> None:
    # Workers of two versions must agree on it; a change here needs a note in the changelog.
    assert key(7) == "be57b2b86542b1103e1ab353ef9f8419"


@pytest.mark.parametrize(
    ("object_id", "said"),
    [
        (None, "None: there is no object"),
        (True, "a bool"),
        ({"secret": 1}, "a dict"),
        ([1, [2.0]], "a float"),
    ],
)
def test_what_cannot_name_an_object_is_refused(object_id: object, said: str) -> None:
    with pytest.raises(ObjectIdError) as caught:
        key(object_id)

    assert caught.value.task_name == "proj.charge"
    assert said in str(caught.value)
    assert "secret" not in str(caught.value)
    assert "an int, a str, a UUID, bytes, or a tuple" in str(caught.value)


def charge(account_id: int, amount: int, /, currency: str = "EUR", *, note: str = "") -> None: ...


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("acount_id", "Did you mean 'account_id'?"),
        ("zzz", "Its arguments are account_id, amount, currency, note."),
        (lambda account_id, amount, currency: None, "let it take what the task takes"),
    ],
)
def test_a_spec_that_does_not_fit_the_task_is_refused(spec: Any, said: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        check_object_id_spec(spec, inspect.signature(charge), "proj.charge")

    assert said in str(caught.value)
    assert "'proj.charge'" in str(caught.value)
