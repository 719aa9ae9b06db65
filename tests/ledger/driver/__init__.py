"""A random driver of the real scripts: worlds from a seed, with all actors in one process."""
