"""The parts for other frameworks."""
