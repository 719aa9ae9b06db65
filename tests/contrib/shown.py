"""What pages of the admin show."""

from __future__ import annotations

import re
from typing import Any

LIST = "/admin/celery_reliable/deadletter/"
ACT = f"{LIST}act/"
REPLAY, DISCARD = f"{ACT}replay_dead_letters/", f"{ACT}discard_dead_letters/"
DESK = f"{LIST}desk/"


def listed(shown: str) -> list[str]:
    return re.findall(r'data-letter="([^"]+)"', shown)


def page(answer: Any) -> str:
    assert answer.status_code == 200
    return str(answer.content.decode())
