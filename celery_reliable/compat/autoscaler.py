"""Celery's autoscaler, which lets a pool grow and shrink."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from celery.worker.autoscale import Autoscaler

from celery_reliable.compat.relied import Name, Part, Used, relies_on

__all__ = ["count_also", "scale"]

_SCALER = "celery.worker.autoscale:Autoscaler"


@relies_on(
    Name(f"{_SCALER}.qty", used_by=f"{_SCALER}._maybe_scale"),
    Used(by=f"{_SCALER}.maybe_scale", name="_maybe_scale"),
    Used(by="celery.worker.autoscale:WorkerComponent.create", name="autoscaler"),
    part=Part.PREFORK,
    is_promise=False,
)
def count_also(w: Any, others: Callable[[], int]) -> bool:
    """Let a worker's autoscaler count *others* beside the requests that the main process has; False
    where it is no subclass of Celery's.

    Gives that one autoscaler a class of its own, whose ``qty`` counts more: Celery asks nobody else
    how many processes are wanted.  Checked on Celery 5.6.3 and 5.7.0.  Without it a pool whose
    processes take their own messages does not grow.
    """
    scaler = w.autoscaler
    if not isinstance(scaler, Autoscaler):
        return False
    kind: Any = type(scaler)

    class Counting(kind):
        @property
        def qty(self) -> int:
            return int(super().qty) + others()

    scaler.__class__ = Counting
    return True


@relies_on(
    Name(f"{_SCALER}.maybe_scale", takes=("req",)),
    part=Part.PREFORK,
    is_promise=False,
)
def scale(w: Any, *, has_begun: bool) -> None:
    """Let a worker's autoscaler look how many processes are wanted.  *has_begun*: tasks have begun
    since it did so last, so that it does not end processes yet.

    Calls ``maybe_scale``, and ``on_task_received`` before it, which Celery 5.6 does not have.
    Checked on Celery 5.6.3 and 5.7.0.  Without it a pool grows only as the main process receives a
    task.
    """
    scaler = w.autoscaler
    received = getattr(scaler, "on_task_received", None)
    if has_begun and received is not None:
        received(None)
    scaler.maybe_scale()
