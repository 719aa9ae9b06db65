"""A content security policy under which only the site's own files run and are drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

__all__ = ["POLICY", "with_policy"]

POLICY = "; ".join(
    (
        "default-src 'self'",
        "base-uri 'none'",
        "form-action 'self'",
        "frame-ancestors 'none'",
        "object-src 'none'",
    )
)


def with_policy(get_response: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Send the policy with each answer."""

    def answer(request: Any) -> Any:
        response = get_response(request)
        response["Content-Security-Policy"] = POLICY
        return response

    return answer
