"""What Celery gives tasks of a Django project is there with our base too."""

from __future__ import annotations

import os
import subprocess
import sys

from tests.support.processes import REPOSITORY

CODE = """
import sys
import celery_reliable
print(hasattr(celery_reliable.ReliableTask, "delay_on_commit"), "django.db" in sys.modules)
"""


def asked(**environ: str) -> str:
    """Ask a fresh interpreter."""
    inherited = {k: v for k, v in os.environ.items() if k != "DJANGO_SETTINGS_MODULE"}
    return subprocess.run(
        [sys.executable, "-c", CODE],
        env={**inherited, **environ, "PYTHONPATH": str(REPOSITORY)},
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()


def test_delay_on_commit_is_there_in_a_django_project() -> None:
    assert asked(DJANGO_SETTINGS_MODULE="any.settings") == "True True"


def test_without_a_django_project_django_is_not_imported() -> None:
    assert asked() == "False False"
