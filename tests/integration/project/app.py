"""The module that workers and beats of the tests are started with (`celery -A`)."""

from __future__ import annotations

import os
from functools import partial
from typing import Any

from celery.signals import beat_init, worker_ready

from tests.integration.project.factory import Settings, create_app

app = create_app(Settings.from_environ(os.environ))
app.set_current()
if trap := os.environ.get("TRAP"):
    from tests.integration.project.canvases import lay_trap
    from tests.integration.project.hindered import hinder

    lay_trap(app, trap)
    hinder(app, trap)


def tell_that_it_is_up(sender: Any = None, **_: Any) -> None:
    """Tell it in the first turn of a worker's main loop: there it subscribes to commands."""
    tell = partial(app.effects.client.set, os.environ["READY_KEY"], os.getpid())
    hub = getattr(sender, "hub", None)
    tell() if hub is None else hub.call_soon(tell)


worker_ready.connect(tell_that_it_is_up)
beat_init.connect(tell_that_it_is_up)
