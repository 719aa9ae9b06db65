"""The arena: the same faults, done to this package, to stock Celery and to other systems."""
