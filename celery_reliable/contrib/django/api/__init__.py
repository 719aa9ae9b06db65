"""The JSON API: what an operator sees and does, for programs, below ``v1/``.

``celery_reliable.contrib.django.urls`` has its addresses.  Who asks, and what he may do, is said by
classes of the project's own, if it has such::

    CELERY_RELIABLE_API = {
        "AUTHENTICATION": ["shop.desk.TokenAuthentication"],
        "PERMISSION": "shop.desk.may",
    }
"""

from __future__ import annotations

from celery_reliable.contrib.django.api.authentication import Authentication, SessionAuthentication
from celery_reliable.operations import Right

__all__ = ["Authentication", "Right", "SessionAuthentication"]
