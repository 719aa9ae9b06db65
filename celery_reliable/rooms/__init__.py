"""What workers were delivered and have not acknowledged: a room of its own for each."""

from __future__ import annotations

from celery_reliable.rooms.entries import RETURNS, Entry, returns_of, task_id_of
from celery_reliable.rooms.marks import forget_server, server_seen
from celery_reliable.rooms.room import (
    ROOM_PREFIX,
    ROOMS_PREFIX,
    Delivery,
    Room,
    Taken,
    opened_room,
    room_names,
    room_of,
)

__all__ = [
    "RETURNS",
    "ROOMS_PREFIX",
    "ROOM_PREFIX",
    "Delivery",
    "Entry",
    "Room",
    "Taken",
    "forget_server",
    "opened_room",
    "returns_of",
    "room_names",
    "room_of",
    "server_seen",
    "task_id_of",
]
