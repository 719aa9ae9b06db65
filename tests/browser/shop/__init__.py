"""A small shop, whose tasks fail in the night: a Celery app, and a Django site with its desk."""
