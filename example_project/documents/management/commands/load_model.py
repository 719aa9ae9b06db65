"""Have every machine with a GPU load a version of the model, each once."""

from __future__ import annotations

from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand, CommandError

from celery_reliable import NotPublished
from documents.tasks import load_model


class Command(BaseCommand):
    """Have every machine with a GPU load a version of the model, each once."""

    help = "Have every worker that is called gpu-* load a version of the model."

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the version."""
        parser.add_argument("version")

    def handle(self, *args: Any, version: str, **options: Any) -> None:
        """Publish one task for each of the workers that are alive now."""
        try:
            run = load_model.run_on("gpu-*", args=(version,))
        except NotPublished as exc:
            raise CommandError(str(exc)) from exc
        self.stdout.write(f"{run.id}  on {len(run.results)} workers")
