"""A model of rows with tasks, and two that are none."""

from __future__ import annotations

from django.db import models

from celery_reliable.contrib.django.rows import TaskRow


class Book(TaskRow):
    """Its pages are counted."""

    title = models.CharField(max_length=50, default="")
    paid = models.BooleanField(default=False)
    pages = models.IntegerField(null=True)
    cents = models.IntegerField(default=0)


class Atlas(Book):
    """Has the columns of its task in its parent's table, so it is no row with a task."""

    maps = models.IntegerField(default=0)


class Shelf(models.Model):
    """No row with a task."""
