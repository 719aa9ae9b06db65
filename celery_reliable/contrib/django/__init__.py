"""The Django part: ``INSTALLED_APPS += ["celery_reliable.contrib.django"]``.

It reads ``CELERY_RELIABLE`` from Django's settings, checks the settings with Django's own checks,
and shows dead letters in the admin.  ``celery_reliable.contrib.django.urls`` is a JSON API, for who
includes it.  There is no table and no migration.
"""
