"""An app with rows that have tasks."""
