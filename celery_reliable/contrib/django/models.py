"""What the admin's menu and log know of.  There are no tables: what is shown is in the ledger."""

from __future__ import annotations

from typing import Any

from django.db import models

__all__ = ["DeadLetter"]


class _NoRows(models.Manager):
    """Finds nothing, and asks no database: so `dumpdata` and the admin's log go on."""

    def get_queryset(self) -> Any:
        """Return what is empty for good."""
        return super().get_queryset().none()


class DeadLetter(models.Model):
    """A name for permissions and the admin's log; `project` says which is needed for
    what.

    There are no rows: ask `celery_reliable.operations`.
    """

    task_id = models.CharField("task id", max_length=255, primary_key=True)

    objects = _NoRows()

    class Meta:
        """Unmanaged: no table, no migration."""

        managed = False
        default_permissions = ("change", "delete", "view")
        # `migrate` makes them; those that are granted already stay.
        permissions = (
            ("operate", "Can operate tasks, queues and workers"),
            ("see_arguments", "Can see arguments of tasks"),
        )
        base_manager_name = "objects"
        verbose_name = "dead letter"
        # The entry in the admin's menu.
        verbose_name_plural = "desk"

    def __str__(self) -> str:
        return str(self.task_id)
