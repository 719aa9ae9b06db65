"""The ledger against a real Redis, without Celery."""
