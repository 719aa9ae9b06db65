"""Who sends a request."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.http import HttpRequest

__all__ = ["Authentication", "SessionAuthentication"]


class Authentication:
    """How a request says who sends it.  A project's own is a subclass; one is made for each
    request.
    """

    #: A browser sends a cookie also when another site asks it to, so whoever is known by one has to
    #: send Django's CSRF token, too, with what changes anything.  A header that only the client
    #: itself can set needs none.
    is_csrf_exempt: bool = False
    #: For the ``WWW-Authenticate`` of a request that nobody could be found for.
    challenge: str = ""

    def authenticate(self, request: HttpRequest) -> Any:
        """Return who sends it; None if this one cannot tell, and the next is asked."""
        raise NotImplementedError

    def scheme(self) -> dict[str, Any]:
        """Return the security scheme of OpenAPI that describes it."""
        raise NotImplementedError


class SessionAuthentication(Authentication):
    """The user who is logged in to Django; the default."""

    challenge = 'Session realm="celery_reliable"'

    def authenticate(self, request: HttpRequest) -> Any:
        """Return the session's user, or None."""
        user = getattr(request, "user", None)
        return user if user is not None and user.is_authenticated else None

    def scheme(self) -> dict[str, Any]:
        """Return a cookie's scheme."""
        return {"type": "apiKey", "in": "cookie", "name": settings.SESSION_COOKIE_NAME}
