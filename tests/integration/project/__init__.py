"""A small Celery project without Django, run by real workers in the integration tests."""
