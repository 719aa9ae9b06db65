"""The addresses of the API."""

from __future__ import annotations

from typing import Any

from django.urls import path, re_path

from celery_reliable.contrib.django.api.acts import ACTS
from celery_reliable.contrib.django.api.answers import Document
from celery_reliable.contrib.django.api.declaring import Asked, Operation
from celery_reliable.contrib.django.api.document import document_of
from celery_reliable.contrib.django.api.reads import READS
from celery_reliable.contrib.django.api.requests import view_of

__all__ = ["OPERATIONS", "urlpatterns"]


def openapi(asked: Asked) -> Document:
    """This document."""
    return document_of(OPERATIONS, asked.server, asked.ways)


OPERATIONS = (*READS, *ACTS, Operation("GET", "openapi.json", openapi, Document))


def _routes() -> list[Any]:
    by_path: dict[str, list[Operation]] = {}
    for one in OPERATIONS:
        by_path.setdefault(one.path, []).append(one)
    routes = [
        path(f"v1/{address}", view_of(found), name=found[0].id)
        for address, found in by_path.items()
    ]
    return [*routes, re_path("^v1/", view_of(()))]


urlpatterns = _routes()
