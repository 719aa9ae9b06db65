"""Revoking by `app.control`: the ledger hears of it before any worker does.

Workers remember what is revoked as long as they live, and hear it only while they listen.
"""

from __future__ import annotations

from typing import Any
from uuid import UUID

from celery import Celery
from celery.app.control import Control
from celery.utils.functional import maybe_list

from celery_reliable.compat.app import give_part, make_part_by
from celery_reliable.message import id_as_text
from celery_reliable.recovery import call_off

__all__ = ["RecordingControl", "install_control", "install_control_everywhere"]


class RecordingControl(Control):
    """Celery's control with the ledger told of what is revoked."""

    def revoke(self, task_id: Any, destination: Any = None, *args: Any, **kwargs: Any) -> Any:
        """Tell workers to revoke a task (or a list of them), and the ledger, unless only some
        workers are to hear it.
        """
        # Workers know a task by the text of its id.
        ids = (str, bytes, UUID)
        if isinstance(task_id, ids):
            task_id = id_as_text(task_id)
        else:
            task_id = [id_as_text(one) if isinstance(one, ids) else one for one in task_id or []]
        # First: what is sent may be waited for, and the broker may be away.
        if destination is None:
            call_off(self.app, maybe_list(task_id) or [])
        return super().revoke(task_id, destination, *args, **kwargs)


def install_control_everywhere() -> None:
    """Make every app of this process that has made no control yet tell the ledger."""
    make_part_by("control", "celery.app.control:Control", f"{__name__}:{RecordingControl.__name__}")


def install_control(app: Celery) -> None:
    """Make *app* tell the ledger.  Repeating it changes nothing.

    For an app with a control class of its own, or made before this package was imported.
    """
    give_part(app, "control", RecordingControl)
