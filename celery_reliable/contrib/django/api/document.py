"""The OpenAPI document, made of the declarations by which requests are routed and checked."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import is_dataclass
from http import HTTPStatus
from importlib.metadata import version
from typing import Any

import msgspec

from celery_reliable import operations as operations_package
from celery_reliable.contrib.django.api.authentication import Authentication
from celery_reliable.contrib.django.api.declaring import Operation
from celery_reliable.contrib.django.api.problems import ProblemDetails

__all__ = ["document_of"]

_PLACE = "#/components/schemas/{name}"
_ALL = (400, 401, 403, 503)
_WITH_BODY = (413, 415)


def document_of(
    operations: Sequence[Operation], server: str, authentication: Iterable[Authentication]
) -> dict[str, Any]:
    """Return the document of *operations*, which are below *server*."""
    kinds = [ProblemDetails, *(one.answers for one in operations)]
    kinds += [one.body for one in operations if one.body is not None]
    kinds += [one.query for one in operations]
    found, parts = msgspec.json.schema_components(kinds, ref_template=_PLACE)
    for name, part in parts.items():
        thing = getattr(operations_package, name, None)
        # Each has a default where it is made, and is there in every answer.
        if is_dataclass(thing) and not getattr(thing, "is_sparse", False):
            part["required"] = [*part["properties"]]
    schemas = dict(zip(map(_key, kinds), found, strict=True))
    schemes = {type(one).__name__: one.scheme() for one in authentication}
    paths: dict[str, dict[str, Any]] = {}
    for one in operations:
        described = _described(one, schemas, parts)
        paths.setdefault(f"/{one.path}", {})[one.method.lower()] = described
    # What is asked in a query is told with its operation.
    for one in operations:
        parts.pop(one.query.__name__, None)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "celery_reliable",
            "version": version("celery-reliable"),
            "summary": "What an operator sees and does.",
        },
        "servers": [{"url": server}],
        "paths": paths,
        "components": {"schemas": parts, "securitySchemes": schemes},
        "security": [{name: []} for name in schemes],
    }


def _described(
    one: Operation, schemas: dict[str, Any], parts: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    summary, _, rest = " ".join(one.about.split()).partition(". ")
    rights = ", ".join(right.value for right in one.needs)
    more = "".join(f" With {name}: {right.value}." for name, right in one.needs_for.items())
    described: dict[str, Any] = {
        "operationId": one.id,
        "summary": summary.rstrip("."),
        "description": f"{rest}\n\nNeeds: {rights}.{more}".strip(),
        "x-needs": [right.value for right in one.needs],
        "responses": {"200": _response("Done.", "application/json", schemas[_key(one.answers)])},
    }
    asked = parts[one.query.__name__]
    if asked["properties"]:
        described["parameters"] = [
            {
                "name": name,
                "in": "query",
                "required": name in asked["required"],
                "schema": schema,
            }
            for name, schema in asked["properties"].items()
        ]
    statuses = {*_ALL, *one.problems}
    if one.body is not None:
        statuses |= {*_WITH_BODY}
        described["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": schemas[_key(one.body)]}},
        }
    for status in sorted(statuses):
        described["responses"][str(status)] = _response(
            HTTPStatus(status).phrase, "application/problem+json", schemas[_key(ProblemDetails)]
        )
    return described


def _response(about: str, media_type: str, schema: Any) -> dict[str, Any]:
    return {"description": about, "content": {media_type: {"schema": schema}}}


def _key(kind: Any) -> str:
    return str(kind)
