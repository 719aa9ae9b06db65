"""The driver's own questions to the server, thousands a second: a socket without a client."""

from __future__ import annotations

import socket
from typing import Any


class Asking:
    """One connection that no world knows of."""

    def __init__(self, port: int, db: int = 0) -> None:
        self._socket = socket.create_connection(("127.0.0.1", port), 30)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._file = self._socket.makefile("rb")
        self.ask("SELECT", db)
        #: Its number at the server.
        self.id = str(self.ask("CLIENT", "ID"))

    def ask(self, *words: Any) -> Any:
        """Return the reply to one command: bytes, a number or None."""
        parts = [b"*%d\r\n" % len(words)]
        for word in words:
            data = word if isinstance(word, bytes) else str(word).encode()
            parts.append(b"$%d\r\n%s\r\n" % (len(data), data))
        self._socket.sendall(b"".join(parts))
        line = self._file.readline()
        kind, rest = line[:1], line[1:-2]
        if kind == b"-":
            raise RuntimeError(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            size = int(rest)
            return None if size < 0 else self._file.read(size + 2)[:-2]
        return rest
