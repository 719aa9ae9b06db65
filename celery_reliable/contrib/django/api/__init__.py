"""The JSON API: what an operator sees and does, for programs, below ``v1/``.

``celery_reliable.contrib.django.urls`` has its addresses.  Who asks is said by classes of
django-ninja's (`ninja.security`), and what he may do by a function, if a project has such::

    CELERY_RELIABLE_API = {
        "AUTHENTICATION": ["shop.desk.TokenAuthentication"],
        "PERMISSION": "shop.desk.may",
    }
"""

from __future__ import annotations

from celery_reliable.contrib.django.api.access import SessionAuthentication

__all__ = ["SessionAuthentication"]
