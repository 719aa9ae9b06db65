"""Documents in the admin: what was found, by which attempt, and every run of the check."""

from __future__ import annotations

from django.contrib import admin
from django.db.models import QuerySet
from django.http import HttpRequest

from celery_reliable.contrib.django.admin import TaskRowAdmin
from documents.models import Document, Run
from documents.tasks import check_document


class RunInline(admin.TabularInline):
    """The runs of one document's checks, to be read only."""

    model = Run
    extra = 0
    can_delete = False
    fields = ("attempt", "outcome", "worker", "pid", "started_at", "ended_at", "task_id")
    readonly_fields = fields

    def has_add_permission(self, request: HttpRequest, obj: object = None) -> bool:
        """Nobody adds runs by hand."""
        return False


@admin.register(Document)
class DocumentAdmin(TaskRowAdmin):
    """The documents and their findings, with an action that checks again."""

    list_display = (
        "name",
        "task_status",
        "readability",
        "grade",
        "n_findings",
        "task_attempt",
        "checked_at",
    )
    list_filter = ("task_status", "grade", "customer")
    search_fields = ("name", "path")
    readonly_fields = (
        "readability",
        "grade",
        "structure",
        "summary",
        "embedding",
        "created_at",
        "checked_at",
    )
    inlines = (RunInline,)
    actions = ("check_again",)

    @admin.display(description="findings")
    def n_findings(self, document: Document) -> int:
        """Count what the check found."""
        return len(document.structure.get("findings", ()))

    @admin.action(description="Check the selected documents")
    def check_again(self, request: HttpRequest, documents: QuerySet[Document]) -> None:
        """Queue a check for each selected document."""
        for document in documents:
            check_document.delay(document.pk)
        self.message_user(request, f"{len(documents)} documents will be checked.")
