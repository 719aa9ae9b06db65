"""Celery's own integration tests with `ReliableTask` under every task."""
