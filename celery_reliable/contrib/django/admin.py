"""The desk in Django's admin: what waits and why, what failed and why, and acts upon it.

The pages ask `celery_reliable.operations`, and decide nothing.  Arguments are redacted unless
somebody with the permission asks for them.  Each act asks first, and is in the audit and in the
admin's log.
"""

from __future__ import annotations

from celery_reliable.contrib.django.desk.registered import DeadLetterAdmin
from celery_reliable.contrib.django.rows.admin import TaskRowAdmin, UnpublishedFilter

__all__ = ["DeadLetterAdmin", "TaskRowAdmin", "UnpublishedFilter"]
