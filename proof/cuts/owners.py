"""Which process has a connection: asked of the kernel, as no client says it."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator
from pathlib import Path

__all__ = ["owner_of"]

_PROC = Path("/proc")
_LOOPBACK = socket.inet_aton("127.0.0.1") + bytes(12)
#: Of Linux's linux/netlink.h, linux/sock_diag.h and linux/inet_diag.h.
_SOCK_DIAG, _BY_FAMILY, _REQUEST, _ERROR, _ANY = 4, 20, 1, 2, 0xFFFFFFFF
_INODE_AT = 16 + 68


def owner_of(port: int, to_port: int, leaders: list[int]) -> int | None:
    """The pid, of these sessions, that is connected from the one port of loopback to the other.

    A forked process inherits its parent's connections, so the leader is asked before the others.
    """
    inode = _inode_of(port, to_port)
    if inode is None:
        return None
    wanted = f"socket:[{inode}]"
    for leader in leaders:
        for pid in _session_of(leader):
            if _has(pid, wanted):
                return pid
    return None


def _inode_of(port: int, to_port: int) -> int | None:
    """The client's socket, by one question.  A table of all would take the longer, the more
    connections there are.
    """
    ends = struct.pack("!HH", port, to_port) + _LOOPBACK + _LOOPBACK
    asked = struct.pack("=BBBBI", socket.AF_INET, socket.IPPROTO_TCP, 0, 0, _ANY) + ends
    asked += struct.pack("=III", 0, _ANY, _ANY)
    head = struct.pack("=IHHII", 16 + len(asked), _BY_FAMILY, _REQUEST, 0, 0)
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as kernel:
        kernel.send(head + asked)
        answer = kernel.recv(4096)
    (kind,) = struct.unpack_from("=H", answer, 4)
    if kind == _ERROR:
        return None
    (inode,) = struct.unpack_from("=I", answer, _INODE_AT)
    return int(inode)


def _session_of(leader: int) -> Iterator[int]:
    """The pids of a session: its leader first."""
    yield leader
    for entry in os.listdir(_PROC):
        if entry.isdigit() and entry != str(leader):
            try:
                if os.getsid(int(entry)) == leader:
                    yield int(entry)
            except OSError:
                continue


def _has(pid: int, wanted: str) -> bool:
    folder = f"{_PROC}/{pid}/fd"
    try:
        names = os.listdir(folder)
    except OSError:
        return False
    for name in names:
        try:
            if os.readlink(f"{folder}/{name}") == wanted:
                return True
        except OSError:
            continue
    return False
