"""URLs of a Redis: which there are, and how they are shown."""

from __future__ import annotations

import re
from typing import Final

__all__ = ["REDIS_SCHEMES", "sanitized_url", "split_urls"]

#: What the URL of a Redis may begin with: a `REDIS_URL`, or the broker's.
REDIS_SCHEMES: Final = ("redis", "rediss", "unix", "redis+socket", "rediss+socket", "sentinel")


def sanitized_url(url: str) -> str:
    """Return `url` without user and password, also when it is malformed or a list of URLs."""
    return ";".join(_sanitized(part) for part in split_urls(url))


def split_urls(url: str) -> list[str]:
    """Return the URLs of a list, as Celery writes them for Sentinels."""
    return re.split(r";(?=[\w+]+://)", url.rstrip(";"))


def _sanitized(url: str) -> str:
    until_at = re.compile(r"^([\w+]+://)?.*@", flags=re.DOTALL)
    found = re.search(r"(?i)password=", url)
    if found is not None and "@" in url[found.end() :]:
        # Either the "@" is this password's, or it ends another that has "password=" in it.
        return until_at.sub(r"\1**", url[: url.rindex("@") + 1])
    # The last "@" ends the password even where it was not quoted as it should be.
    return re.sub(r"(?i)(password=)[^&]*", r"\1**", until_at.sub(r"\1**@", url))
