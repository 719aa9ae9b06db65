"""The shop's site: Django's admin with the package's pages, and a policy as strict as can be."""

from __future__ import annotations

import os

from tests.browser.shop.factory import RELIABLE
from tests.support.admin_settings import *  # noqa: F403
from tests.support.admin_settings import INSTALLED_APPS, MIDDLEWARE

DEBUG = False
ALLOWED_HOSTS = ["127.0.0.1"]
INSTALLED_APPS = [*INSTALLED_APPS, "django.contrib.staticfiles"]
MIDDLEWARE = [
    "tests.browser.shop.urls.with_policy",
    "django.middleware.security.SecurityMiddleware",
    "django.middleware.common.CommonMiddleware",
    *MIDDLEWARE,
    "django.middleware.clickjacking.XFrameOptionsMiddleware",
]
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ["SHOP_DATABASE"],
        # The server has a thread for each request.
        "OPTIONS": {"timeout": 30},
    }
}
ROOT_URLCONF = "tests.browser.shop.urls"
LANGUAGE_CODE = "en-gb"
TIME_ZONE = "UTC"
CELERY_RELIABLE = RELIABLE
