"""The project's app, whose worker and children write down what they enter of the package."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from celery.signals import worker_process_init, worker_ready

from tests.integration.project.app import app
from tests.support.walking import follow

__all__ = ["app"]


@worker_process_init.connect(weak=False)
@worker_ready.connect(weak=False)
def _follow(**_: Any) -> None:
    follow(Path(os.environ["WAY"]))
