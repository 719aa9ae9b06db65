"""Celery's tracer, through which every execution of a task goes, and what it returns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias
from weakref import ReferenceType

from billiard.compat import mem_rss
from billiard.einfo import ExceptionInfo
from celery import Task as CeleryTask
from celery import signals
from celery.app import trace as celery_trace
from celery.app.trace import TraceInfo, build_tracer, task_has_custom, trace_ok_t
from celery.utils.log import get_logger

from celery_reliable.compat.relied import Behaviour, Kept, Name, Part, Used, relies_on

__all__ = [
    "Traced",
    "Tracer",
    "as_traced",
    "has_default_strategy",
    "has_own_hook",
    "is_heard_after",
    "log_received",
    "memory_kb",
    "run_as_prefork",
    "tracer_of",
]

#: What a tracer returns: result or error, how it ended, its runtime, the result as text.
Traced: TypeAlias = trace_ok_t
Tracer = Callable[..., trace_ok_t]

_TRACE = "celery.app.trace"
_STRATEGY = "celery.worker.strategy:default"


@relies_on(
    Name(f"{_TRACE}:TraceInfo"),
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


@relies_on(Name(f"{_TRACE}:build_tracer", takes=("name", "task", "loader")), part=Part.WORKER)
def tracer_of(task: Any, twin: Any) -> Tracer:
    """Return Celery's own tracer of *twin*, for the name and the app of *task*.

    Calls ``build_tracer``: only it stores results, and publishes callbacks, chains and chords, as
    Celery does.  Checked on Celery 5.6.3 and 5.7.0.  Without it nobody who waits for a result hears
    of a delivery that may not run.
    """
    tracer: Tracer = build_tracer(task.name, twin, task.app.loader, app=task.app)
    return tracer


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
    Name("celery.app.task:Task.Strategy", used_by="celery.app.task:Task.start_strategy"),
    Name("celery.worker.strategy:default", takes=("task", "app", "consumer")),
    Behaviour("a task's strategy is named as a text", lambda: CeleryTask.Strategy == _STRATEGY),
    part=Part.WORKER,
    is_promise=False,
)
def has_default_strategy(task: Any) -> bool:
    """Whether a task uses Celery's own strategy, which hands its messages to the pool.

    Reads ``Task.Strategy``, the path of a function: another strategy may keep a message for long.
    Checked on Celery 5.6.3 and 5.7.0.  Without it no task is claimed as its message is taken, and
    each costs one round trip more.
    """
    return bool(task.Strategy == _STRATEGY)


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


@relies_on(
    Name(f"{_TRACE}:LOG_RECEIVED"),
    Name("celery.worker.strategy:logger"),
    part=Part.PREFORK,
    is_promise=False,
)
def log_received(task_id: str, name: str, headers: Mapping[str, Any]) -> None:
    """Log that a task was received, as Celery's main process does.

    Uses ``LOG_RECEIVED``: users configure the line there.  Checked on Celery 5.6.3 and 5.7.0.
    Without it the log does not tell of tasks that were received by the processes of a pool.
    """
    if _strategy.isEnabledFor(20):
        context = {
            "id": task_id,
            "name": headers.get("shadow") or name,
            "args": headers.get("argsrepr", ""),
            "kwargs": headers.get("kwargsrepr", ""),
            "eta": None,
        }
        _strategy.info(celery_trace.LOG_RECEIVED, context, extra={"data": context})


_strategy = get_logger("celery.worker.strategy")


@relies_on(Kept("celery.utils.dispatch.signal:Signal.receivers"), part=Part.PREFORK)
def is_heard_after() -> bool:
    """Whether somebody but Celery itself hears of a task's success, or of its end, in this process.

    Reads ``Signal.receivers``, which tells who is connected.  Checked on Celery 5.6.3 and 5.7.0.
    Without it a receiver of ``task_success`` may look for a result that is stored right after it.
    """
    for signal in (signals.task_success, signals.task_postrun):
        for _, receiver in signal.receivers:
            found = receiver() if isinstance(receiver, ReferenceType) else receiver
            if found is not None and not str(found.__module__).startswith("celery."):
                return True
    return False


@relies_on(Name("billiard.compat:mem_rss"), part=Part.PREFORK, is_promise=False)
def memory_kb() -> int:
    """Return how many kB of memory this process has used at most, as a prefork pool measures it.

    Calls ``mem_rss``, as billiard does.  Checked on billiard 4.3.2.  Without it a process that uses
    too much memory runs for up to a second longer.
    """
    return int(mem_rss())
