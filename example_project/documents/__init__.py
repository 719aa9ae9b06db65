"""Checks documents for readability and structure."""
