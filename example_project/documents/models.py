"""A document with the findings of its check, and one row for each run of a check."""

from __future__ import annotations

from django.db import models
from django.utils import timezone

from celery_reliable.contrib.django.rows import TaskRow


class Document(TaskRow):
    """A text file and what its check found.

    `TaskRow` adds what is known of the check's task: ``task_status`` and the like. Every write of a
    check is a compare-and-set, so an attempt that was given up for dead, and comes back late,
    changes nothing.
    """

    name = models.CharField(max_length=200)
    path = models.CharField(max_length=500, unique=True)
    customer = models.CharField(max_length=100, default="samples")
    text = models.TextField()
    readability = models.FloatField(null=True, blank=True, help_text="Flesch reading ease")
    grade = models.CharField(max_length=30, default="", blank=True)
    structure = models.JSONField(default=dict, blank=True)
    summary = models.TextField(default="", blank=True)
    embedding = models.JSONField(default=list, blank=True)
    created_at = models.DateTimeField(auto_now_add=True)
    checked_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ("path",)

    def __str__(self) -> str:
        return str(self.name)


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
