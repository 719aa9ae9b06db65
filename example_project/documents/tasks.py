"""The check of one document, as a task that is never lost."""

from __future__ import annotations

import os
import time
import uuid
from typing import Any

from celery import shared_task
from django.conf import settings
from django.db import transaction
from django.utils import timezone

from celery_reliable import ReliableTask
from documents.faults import is_poison, kill_this_process
from documents.models import Document, Run
from documents.readability import readability
from documents.structure import prose, structure


def queue_check(document: Document) -> str:
    """Have a document checked once the running transaction has committed.

    The id is chosen here and written into the row, so that the row accepts the findings of this
    task only: attempts are counted for one task, and say nothing about another's.

    Returns:
        The id of the task.
    """
    task_id = str(uuid.uuid4())
    with transaction.atomic():
        document.wait_for(task_id)
        check_document.apply_async_on_commit(args=(document.pk,), task_id=task_id)
    return task_id


# A document that is loaded anew while it is being checked must be checked again afterwards, so the
# second task waits for the first; "skip" would leave the new text unchecked.
@shared_task(bind=True, base=ReliableTask, object_id="document_id", on_conflict="retry")
def check_document(self: Any, document_id: int) -> dict[str, Any]:
    """Check one document for readability and structure, and write the findings into its row.

    Returns:
        The document's id, the score, and whether this attempt was allowed to write.
    """
    attempt = self.attempt
    run = Run.objects.create(
        document_id=document_id,
        task_id=self.request.id,
        attempt=attempt,
        worker=self.request.hostname,
        pid=os.getpid(),
        started_at=timezone.now(),
    )
    token = {"task_id": self.request.id, "attempt": attempt}
    if not Document.begin(document_id, **token):
        run.end(Run.Outcome.REFUSED)
        return {"document": document_id, "written": False}

    text = Document.objects.values_list("text", flat=True).get(pk=document_id)
    if is_poison(text):
        run.end(Run.Outcome.KILLED_ITSELF)
        kill_this_process()
    score = readability(prose(text))
    findings = structure(text)
    _wait_like_a_model_call()
    written = Document.finish(
        document_id,
        **token,
        readability=score.score,
        grade=score.grade,
        structure={"n_words": score.n_words, "n_sentences": score.n_sentences, **findings},
    )
    run.end(Run.Outcome.WRITTEN if written else Run.Outcome.REFUSED)
    return {"document": document_id, "readability": score.score, "written": written}


def _wait_like_a_model_call() -> None:
    """Take as long as a call to a language model would; the example must not need one."""
    time.sleep(settings.DOCUMENT_CHECK_SECONDS)
