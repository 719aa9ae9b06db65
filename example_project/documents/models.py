"""A document with the findings of its check, and one row for each run of a check."""

from __future__ import annotations

from typing import Any

from django.db import models
from django.utils import timezone


class Document(models.Model):
    """A text file and what its check found.

    Every write of a check is a compare-and-set: it names the Celery task that the document waits
    for and the attempt (celery_reliable's fencing token, which grows with every run of one task).
    So an attempt that was given up for dead, and comes back late, changes nothing.
    """

    class Status(models.TextChoices):
        """How far the check has come."""

        WAITING = "waiting"
        CHECKING = "checking"
        CHECKED = "checked"

    name = models.CharField(max_length=200)
    path = models.CharField(max_length=500, unique=True)
    text = models.TextField()
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.WAITING)
    task_id = models.CharField(max_length=64, default="", editable=False)
    attempt = models.PositiveIntegerField(default=0, editable=False)
    readability = models.FloatField(null=True, blank=True, help_text="Flesch reading ease")
    grade = models.CharField(max_length=30, default="", blank=True)
    structure = models.JSONField(default=dict, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    checked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("path",)

    def __str__(self) -> str:
        return str(self.name)

    def wait_for(self, task_id: str) -> None:
        """Make the task with this id the only one whose check may be written."""
        self.task_id = task_id
        self.attempt = 0
        self.status = self.Status.WAITING
        self.save(update_fields=["task_id", "attempt", "status"])

    @classmethod
    def begin(cls, pk: int, *, task_id: str, attempt: int) -> bool:
        """Note that this attempt has begun; from here on every older one is refused.

        Returns:
            False when the attempt has no business here: a newer attempt has begun, the document
            waits for another task, or an earlier attempt of this task has written its findings.
        """
        row = cls.objects.filter(pk=pk, task_id=task_id, attempt__lt=attempt)
        unwritten = row.exclude(status=cls.Status.CHECKED)
        return bool(unwritten.update(attempt=attempt, status=cls.Status.CHECKING))

    @classmethod
    def finish(cls, pk: int, *, task_id: str, attempt: int, **findings: Any) -> bool:
        """Write the findings, if this attempt is still the newest.

        Returns:
            False when it is not, and nothing was written.
        """
        row = cls.objects.filter(
            pk=pk, task_id=task_id, attempt=attempt, status=cls.Status.CHECKING
        )
        findings |= {"status": cls.Status.CHECKED, "checked_at": timezone.now()}
        return bool(row.update(**findings))


class Run(models.Model):
    """One run of a check, written when it begins and again when it ends: the app's own diary.

    A run without an end belongs to a process that was killed. Nothing in celery_reliable reads
    this table; the demo does, to compare what happened with what was promised.
    """

    class Outcome(models.TextChoices):
        """How a run ended."""

        NONE = "", "no end seen"
        WRITTEN = "written"
        REFUSED = "refused", "refused: not the newest attempt"
        KILLED_ITSELF = "killed itself"

    document = models.ForeignKey(Document, on_delete=models.CASCADE, related_name="runs")
    task_id = models.CharField(max_length=64)
    attempt = models.PositiveIntegerField()
    worker = models.CharField(max_length=200)
    pid = models.PositiveIntegerField()
    started_at = models.DateTimeField()
    ended_at = models.DateTimeField(null=True, blank=True)
    outcome = models.CharField(
        max_length=20, choices=Outcome.choices, default=Outcome.NONE, blank=True
    )

    class Meta:
        ordering = ("started_at",)

    def __str__(self) -> str:
        return f"{self.document_id}, attempt {self.attempt}"

    def end(self, outcome: str) -> None:
        """Write the end of this run."""
        self.outcome = outcome
        self.ended_at = timezone.now()
        self.save(update_fields=["outcome", "ended_at"])
