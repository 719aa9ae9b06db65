"""What is done with one document, as tasks that are never lost: its check, what models say of it,
and its way into the archive.
"""

from __future__ import annotations

import os
import time
from typing import Any

from celery import shared_task
from django.conf import settings
from django.utils import timezone

from celery_reliable import ReliableTask
from celery_reliable.contrib.django.rows import RowTaken, RowTask
from documents import archive, language_model
from documents.faults import is_poison, kill_this_process
from documents.models import Document, Run
from documents.readability import readability
from documents.structure import prose, structure


# A document that is loaded anew while it is being checked must be checked again afterwards, so the
# second task waits for the first.
@shared_task(
    bind=True,
    base=RowTask,
    row_model="documents.Document",
    object_id="document_id",
    on_conflict="wait",
)
def check_document(self: Any, document_id: int) -> dict[str, Any]:
    """Check one document for readability and structure, and write the findings into its row.

    Returns:
        The document's id and the score.
    """
    run = Run.objects.create(
        document_id=document_id,
        task_id=self.request.id,
        attempt=self.attempt,
        worker=self.request.hostname,
        pid=os.getpid(),
        started_at=timezone.now(),
    )
    text = self.row.text
    if is_poison(text):
        run.end(Run.Outcome.KILLED_ITSELF)
        kill_this_process()
    score = readability(prose(text))
    findings = structure(text)
    _wait_like_a_model_call()
    try:
        # Committed once, whatever is killed; and with it the row says that the task has succeeded.
        with self.effect():
            self.row.readability, self.row.grade = score.score, score.grade
            self.row.structure = {
                "n_words": score.n_words,
                "n_sentences": score.n_sentences,
                **findings,
            }
            self.row.checked_at = timezone.now()
            self.row.save(update_fields=["readability", "grade", "structure", "checked_at"])
            run.end(Run.Outcome.WRITTEN)
    except RowTaken:
        run.end(Run.Outcome.REFUSED)
        raise
    return {"document": document_id, "readability": score.score}


# The archive allows so many connections, whoever of the fleet they are from. A task that finds none
# waits in line in the ledger: no process waits with it, and nothing asks again and again.
@shared_task(base=ReliableTask, at_most=archive.CONNECTIONS, on_conflict="wait")
def archive_document(document_id: int) -> None:
    """Store what the check of a document has found in the archive."""
    document = Document.objects.get(pk=document_id)
    archive.put(document.name, {"readability": document.readability, **document.structure})


# The API of the model allows so many calls a second, whoever of the fleet they are from. And of one
# customer two tasks at a time are in the queue, or wait for their moment: so one who loads a
# thousand documents does not take the next thousand moments, and the others wait for a second.
@shared_task(
    base=ReliableTask,
    rate=language_model.RATE,
    object_id="customer",
    at_most=2,
    on_conflict="wait",
    place="queued",
    # Where all processes were busy for a while, several moments may be used at once.
    autoretry_for=(language_model.TooManyCalls,),
    default_retry_delay=1,
)
def summarize_document(customer: str, document_id: int) -> None:
    """Ask the model for a summary of one document of a customer."""
    document = Document.objects.get(pk=document_id)
    summary = language_model.summarize(prose(document.text))
    Document.objects.filter(pk=document_id).update(summary=summary)


# Only these machines have a GPU. While none of them is alive it waits, and is sent when one starts.
@shared_task(base=ReliableTask, only_workers="gpu-*")
def embed_document(document_id: int) -> None:
    """Have a model on a machine of our own say where one document stands among the others."""
    document = Document.objects.get(pk=document_id)
    Document.objects.filter(pk=document_id).update(
        embedding=language_model.embed(prose(document.text))
    )


@shared_task(bind=True, base=ReliableTask)
def load_model(self: Any, version: str) -> None:
    """Load the model into the memory of the machine that runs this (``load_model.run_on``)."""
    language_model.load(self.request.hostname, version)


def _wait_like_a_model_call() -> None:
    """Take as long as a call to a language model would; the example must not need one."""
    time.sleep(settings.DOCUMENT_CHECK_SECONDS)
