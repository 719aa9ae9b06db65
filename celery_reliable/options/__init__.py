"""The options of a task: their checks, and what follows from them."""

from __future__ import annotations

from celery_reliable.options.calls import (
    CALL,
    REFUSE,
    call_of,
    check_call,
    check_if_exists,
    in_force,
    take_call,
    take_if_exists,
)
from celery_reliable.options.declared import TaskOptions
from celery_reliable.options.definition import (
    OPTIONS,
    TaskObject,
    doubts,
    object_of,
    options_without_base,
    problems,
    refuse,
)
from celery_reliable.options.naming import NAMING, naming_problems, patterns_of
from celery_reliable.options.object_id import object_key, resolve_object_id
from celery_reliable.options.rates import is_per_object
from celery_reliable.options.values import (
    id_of,
    is_kept_dead,
    is_limited,
    is_of_object,
    is_placed_early,
    is_reliable,
    is_unique,
    keep_ms,
    key_of,
    names_workers,
    rate_of,
    room_of,
    stands_in_line,
    task_ref,
)

__all__ = [
    "CALL",
    "NAMING",
    "OPTIONS",
    "REFUSE",
    "TaskObject",
    "TaskOptions",
    "call_of",
    "check_call",
    "check_if_exists",
    "doubts",
    "id_of",
    "in_force",
    "is_kept_dead",
    "is_limited",
    "is_of_object",
    "is_per_object",
    "is_placed_early",
    "is_reliable",
    "is_unique",
    "keep_ms",
    "key_of",
    "names_workers",
    "naming_problems",
    "object_key",
    "object_of",
    "options_without_base",
    "patterns_of",
    "problems",
    "rate_of",
    "refuse",
    "resolve_object_id",
    "room_of",
    "stands_in_line",
    "take_call",
    "take_if_exists",
    "task_ref",
]
