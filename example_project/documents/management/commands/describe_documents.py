"""Have the models say what they can of every document."""

from __future__ import annotations

from typing import Any

from django.core.management.base import BaseCommand

from documents.models import Document
from documents.tasks import embed_document, summarize_document


class Command(BaseCommand):
    """Have every document summarized, and its place among the others found."""

    help = "Have the models summarize each document, and find where it stands among the others."

    def handle(self, *args: Any, **options: Any) -> None:
        """Publish two tasks for each."""
        documents = Document.objects.values_list("pk", "customer")
        for document_id, customer in documents:
            summarize_document.delay(customer, document_id)
            # A long text may take a while; a second loss would say that it is the text.
            embed_document.apply_async((document_id,), time_to_run_seconds=600, max_losses=1)
        self.stdout.write(self.style.SUCCESS(f"{len(documents)} documents will be described."))
