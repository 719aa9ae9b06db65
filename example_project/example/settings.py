"""Settings of the example project; what differs between machines comes from the environment.

==========================  ==========================  ===========================================
variable                    default                     meaning
==========================  ==========================  ===========================================
``BROKER_URL``              redis://localhost:6379/0    broker, ledger and results
``EXAMPLE_DATABASE``        db.sqlite3 beside manage.py path of the SQLite file
``EXAMPLE_ARCHIVE``         archive beside manage.py    the folder that stands for an archive
``EXAMPLE_MODELS``          models beside manage.py     the folder that stands for the models
``EXAMPLE_CHECK_SECONDS``   5                           how long the pretended model call takes
``EXAMPLE_FAULTS``          0                           1 lets a document kill the process (demo)
``EXAMPLE_SECRET_KEY``      a key for one's own machine Django's ``SECRET_KEY``
``EXAMPLE_DEBUG``           1                           Django's ``DEBUG``
==========================  ==========================  ===========================================
"""

from __future__ import annotations

import os
from pathlib import Path

BASE_DIR = Path(__file__).resolve().parent.parent

SECRET_KEY = os.environ.get("EXAMPLE_SECRET_KEY", "only-for-a-machine-that-nobody-else-can-reach")
DEBUG = os.environ.get("EXAMPLE_DEBUG", "1") == "1"
ALLOWED_HOSTS = ["localhost", "127.0.0.1"]

INSTALLED_APPS = [
    "django.contrib.admin",
    "django.contrib.auth",
    "django.contrib.contenttypes",
    "django.contrib.sessions",
    "django.contrib.messages",
    "django.contrib.staticfiles",
    "celery_reliable.contrib.django",
    "documents",
]

MIDDLEWARE = [
    "django.middleware.security.SecurityMiddleware",
    "django.contrib.sessions.middleware.SessionMiddleware",
    "django.middleware.common.CommonMiddleware",
    "django.middleware.csrf.CsrfViewMiddleware",
    "django.contrib.auth.middleware.AuthenticationMiddleware",
    "django.contrib.messages.middleware.MessageMiddleware",
]

ROOT_URLCONF = "example.urls"
WSGI_APPLICATION = "example.wsgi.application"

TEMPLATES = [
    {
        "BACKEND": "django.template.backends.django.DjangoTemplates",
        "APP_DIRS": True,
        "OPTIONS": {
            "context_processors": [
                "django.template.context_processors.request",
                "django.contrib.auth.context_processors.auth",
                "django.contrib.messages.context_processors.messages",
            ],
        },
    },
]

# Several worker processes write to one SQLite file. WAL lets readers and one writer work side by
# side; IMMEDIATE takes the write lock when a transaction begins, because SQLite refuses at once,
# without waiting for `timeout`, a transaction that began by reading and wants to write later.
# (These options need Django 5.1.)
DATABASES = {
    "default": {
        "ENGINE": "django.db.backends.sqlite3",
        "NAME": os.environ.get("EXAMPLE_DATABASE", str(BASE_DIR / "db.sqlite3")),
        "OPTIONS": {
            "timeout": 30,
            "transaction_mode": "IMMEDIATE",
            "init_command": "PRAGMA journal_mode=WAL; PRAGMA synchronous=NORMAL;",
        },
    },
}
DEFAULT_AUTO_FIELD = "django.db.models.BigAutoField"

LANGUAGE_CODE = "en-gb"
TIME_ZONE = "UTC"
USE_TZ = True
STATIC_URL = "static/"

CELERY_BROKER_URL = os.environ.get("BROKER_URL", "redis://localhost:6379/0")
CELERY_RESULT_BACKEND = CELERY_BROKER_URL
CELERY_BROKER_CONNECTION_RETRY_ON_STARTUP = True
CELERY_TIMEZONE = TIME_ZONE

# The default; it stands here because the demo counts the runs of its poison document.
CELERY_RELIABLE = {
    "MAX_LOSSES": 3,
}

CELERY_BEAT_SCHEDULE = {
    "celery-reliable-sweep": {"task": "celery_reliable.sweep", "schedule": 30.0},
    # Publishes what was committed and never published, and tells rows what became of their tasks.
    "celery-reliable-rows": {"task": "celery_reliable.rows", "schedule": 60.0},
}

DOCUMENT_CHECK_SECONDS = float(os.environ.get("EXAMPLE_CHECK_SECONDS", "5"))
DOCUMENT_ARCHIVE = os.environ.get("EXAMPLE_ARCHIVE", str(BASE_DIR / "archive"))
DOCUMENT_MODELS = os.environ.get("EXAMPLE_MODELS", str(BASE_DIR / "models"))
DOCUMENT_FAULTS_ALLOWED = os.environ.get("EXAMPLE_FAULTS", "0") == "1"
