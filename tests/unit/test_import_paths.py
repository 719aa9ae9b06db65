"""Import paths that are held outside of the package: in settings, in users' code."""

from __future__ import annotations

from importlib import metadata

import pytest
from celery.utils.imports import symbol_by_name

from celery_reliable import ReliableTask

#: In settings (`broker_transport`, `task_cls`, a task's `Request`).
HELD = [
    "celery_reliable.transport:Transport",
    "celery_reliable.transport:SentinelTransport",
    "celery_reliable.request:ReliableRequest",
    "celery_reliable.task:ReliableTask",
]


@pytest.mark.parametrize("path", HELD)
def test_a_path_that_is_held_elsewhere_leads_to_what_it_names(path: str) -> None:
    found, name = symbol_by_name(path), path.partition(":")[2]
    assert getattr(found, "__name__", None) == name or found.name == name


def test_the_paths_that_the_package_itself_gives_away_are_of_that_kind() -> None:
    from celery_reliable.broker import transport_for

    given = {transport_for(scheme) for scheme in ("redis", "rediss", "sentinel")}
    assert given | {ReliableTask.Request} <= set(HELD)


def test_the_command_is_found_by_celery() -> None:
    (command,) = metadata.entry_points(group="celery.commands", name="reliable")
    assert command.load() is symbol_by_name("celery_reliable.operations.cli:reliable")
