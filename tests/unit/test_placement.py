"""Which workers an option means, what a header says of it, and who gets the task."""

from __future__ import annotations

from typing import Any

import pytest
from celery import Celery
from celery.app.trace import build_tracer

from celery_reliable import ReliableTask
from celery_reliable.exceptions import ConfigurationError
from celery_reliable.leases import matches
from celery_reliable.ledger import LivingWorker
from celery_reliable.message import HEIR, NAMED, NamedWorkers
from celery_reliable.publishing.amqp import carry_on
from celery_reliable.publishing.placement import placed, rename


def nothing() -> None:
    """The body of a task."""


def living(*told: tuple[str, int]) -> list[LivingWorker]:
    return [LivingWorker(f"{name}/1.0", name, f"{name}.dq2", held=held) for name, held in told]


@pytest.mark.parametrize(
    ("pattern", "nodename", "is_meant"),
    [
        ("gpu-*", "gpu-1@host", True),
        ("gpu-*", "cpu@gpu-1", False),
        ("alpha@host", "alpha@host", True),
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


def test_the_one_with_the_least_to_do_gets_it_and_the_next_one_goes_to_the_other() -> None:
    fleet = living(("gpu-a@h", 1), ("gpu-b@h", 0), ("cpu@h", 0))
    named = NamedWorkers(("gpu-*",))

    places = [placed(named, fleet) for _ in range(3)]

    assert [place and place.routing_key for place in places] == [
        "gpu-b@h.dq2",
        "gpu-a@h.dq2",
        "gpu-b@h.dq2",
    ]


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"only_workers": ()}, "only_workers=()"),
        ({"only_workers": ("gpu", 3)}, "only_workers=('gpu', 3)"),
        ({"prefer_workers": ""}, "prefer_workers=''"),
    ],
)
def test_options_that_cannot_work_are_refused(options: dict[str, Any], said: str) -> None:
    app = Celery("named", broker="memory://", set_as_current=False)

    with pytest.raises(ConfigurationError) as refused:
        app.task(base=ReliableTask, name="t", lazy=False, shared=False, **options)(nothing)

    assert said in str(refused.value)


@pytest.mark.parametrize(("moved", "pin"), [("{}", "gpu@h"), ('{"only": ["cpu*"]}', "")])
def test_a_retry_of_a_member_that_was_moved_as_it_ran_is_still_one(moved: str, pin: str) -> None:
    headers = {NAMED: NamedWorkers(run="a run", pin="gpu@h", home=("", "q")).as_header()}

    rename(headers, moved)

    named = NamedWorkers.of(headers)
    assert named is not None
    assert (named.run, named.pin, named.home) == ("a run", pin, ("", "q"))


@pytest.mark.parametrize(
    ("message", "is_its_retry"),
    [
        ({"id": "one", "retries": 1}, True),
        ({"id": "one", "retries": 0}, False),
        ({"id": "another", "retries": 1}, False),
    ],
)
def test_only_a_retry_has_our_headers_of_the_message_before(
    message: dict[str, Any], is_its_retry: bool
) -> None:
    ours = {HEIR: "heir", NAMED: {"only": ["gpu-a"]}}
    seen: list[dict[str, Any]] = []
    with Celery("app", set_as_current=False) as app:

        @app.task(name="task", shared=False)
        def task() -> None:
            options: dict[str, Any] = {"headers": {"of_somebody": 1}}
            carry_on("task", message, options)
            seen.append(options["headers"])

        # What a header called "headers" hides.
        request = {**ours, "headers": {"of_somebody": 1}, "id": "one", "retries": 0}
        build_tracer("task", task, app=app, eager=True)("one", (), {}, request)

    assert seen == [{**(ours if is_its_retry else {}), "of_somebody": 1}]
