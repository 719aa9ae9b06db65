"""Load a folder of text files and have every one of them checked."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path
from typing import Any

from django.core.management.base import BaseCommand, CommandError
from django.db import transaction

from documents.models import Document
from documents.tasks import check_document

SAMPLES = Path(__file__).resolve().parent.parent.parent / "samples"
SUFFIXES = {".txt", ".md", ".rst"}


class Command(BaseCommand):
    """Load a folder of text files and have every one of them checked."""

    help = (
        "Load a folder of .txt, .md and .rst files (by default the shipped samples) and check them."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        """Declare the folder, and whose documents they are."""
        parser.add_argument("folder", nargs="?", type=Path, default=SAMPLES)
        parser.add_argument("--customer", default="samples")

    def handle(self, *args: Any, folder: Path, customer: str, **options: Any) -> None:
        """Load the files and publish one task for each, after its row is committed."""
        if not folder.is_dir():
            raise CommandError(f"{folder} is not a folder")
        files = sorted(path for path in folder.iterdir() if path.suffix.lower() in SUFFIXES)
        if not files:
            raise CommandError(f"{folder} has no file that ends in {', '.join(sorted(SUFFIXES))}")
        for path in files:
            text = path.read_text(encoding="utf-8", errors="replace")
            with transaction.atomic():
                document, _ = Document.objects.update_or_create(
                    path=str(path.resolve()),
                    defaults={"name": path.name, "text": text, "customer": customer},
                )
                # It is published when the transaction has committed.
                task_id = check_document.delay(document.pk).id
            self.stdout.write(f"{task_id}  {path.name}")
        self.stdout.write(self.style.SUCCESS(f"{len(files)} documents will be checked."))
