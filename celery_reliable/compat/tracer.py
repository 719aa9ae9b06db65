"""Celery's tracer, through which every execution of a task goes, and what it returns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from billiard.einfo import ExceptionInfo
from celery.app import trace as celery_trace
from celery.app.trace import TraceInfo, task_has_custom, trace_ok_t

from celery_reliable.compat.relied import Behaviour, Name, Part, Used, relies_on

__all__ = [
    "Traced",
    "Tracer",
    "as_traced",
    "has_own_hook",
    "run_as_prefork",
]

#: What a tracer returns: result or error, how it ended, its runtime, the result as text.
Traced: TypeAlias = trace_ok_t
Tracer = Callable[..., trace_ok_t]

_TRACE = "celery.app.trace"


@relies_on(
    Behaviour(
        "a TraceInfo is made of a state and a value",
        lambda: TraceInfo("state", "value").retval == "value",
    ),
    Behaviour(
        "a tracer returns what it was, how it ended, its runtime and its text",
        lambda: trace_ok_t._fields == ("retval", "info", "runtime", "retstr"),
    ),
    part=Part.WORKER,
)
def as_traced(error: Exception, state: str) -> trace_ok_t:
    """Return what Celery's tracer returns when a body raises *error*, in *state*.

    Makes a ``trace_ok_t`` and a ``TraceInfo``, which are in no manual: pools take nothing else for
    the end of a task.  Checked on Celery 5.6.3 and 5.7.0.  Without it a delivery that may not run
    ends its process.
    """
    try:
        raise error
    except Exception as exc:
        return trace_ok_t(ExceptionInfo(internal=True), TraceInfo(state, exc), 0.0, None)


@relies_on(
    Name(f"{_TRACE}:task_has_custom", takes=("task", "attr")),
    Used(by=f"{_TRACE}:build_tracer", name="task_has_custom"),
    part=Part.WORKER,
)
def has_own_hook(task: Any, name: str) -> bool:
    """Whether a task has a hook of the user's, such as ``on_success``, which Celery will call.

    Calls ``task_has_custom``: Celery decides by it, and another judgement could differ.  Checked on
    Celery 5.6.3 and 5.7.0.  Without it an object is freed while a hook of its task works on it.
    """
    return bool(task_has_custom(task, name))


@relies_on(
    Name(f"{_TRACE}:fast_trace_task", takes=("task", "uuid", "request", "body")),
    Used(by="celery.worker.request:Request.execute_using_pool", name="fast_trace_task"),
    part=Part.PREFORK,
)
def run_as_prefork(
    name: str, uuid: str, request: dict[str, Any], body: tuple[Any, Any, Any]
) -> tuple[int, Any, float]:
    """Run a task as the processes of a prefork pool do, and return what they tell the main process:
    whether it did not succeed, its result or error, its runtime.  *body*: arguments, and what is
    embedded in the message.

    Calls ``fast_trace_task``: only it makes the request as Celery does.  Checked on Celery 5.6.3
    and 5.7.0.  Without it no process can run what it has taken by itself.
    """
    outcome: tuple[int, Any, float] = celery_trace.fast_trace_task(
        name, uuid, request, body, None, None
    )
    return outcome
