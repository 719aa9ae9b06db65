"""What the admin calls a dead letter.  There is no table: the letters are in the ledger."""

from __future__ import annotations

from django.db import models

__all__ = ["DeadLetter"]


class DeadLetter(models.Model):
    """A name for permissions and the admin's log.

    ``view_deadletter`` shows dead letters without their arguments, ``change_deadletter`` replays
    them, and ``delete_deadletter`` discards them.  Never query it.
    """

    task_id = models.CharField("task id", max_length=255, primary_key=True)

    class Meta:
        """Unmanaged: no table, no migration."""

        managed = False
        default_permissions = ("change", "delete", "view")
        verbose_name = "dead letter"

    def __str__(self) -> str:
        return str(self.task_id)
