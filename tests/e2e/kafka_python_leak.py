"""kafka-python 3.0 drops the socket of a refused connection without closing it. The garbage
collector reports that in whichever test runs then; here it is closed where it is dropped.
"""

import functools
import socket
from typing import Any

import pytest
from kafka.net.inet import KafkaNetSocket


def close_refused_sockets(patch: pytest.MonkeyPatch) -> None:
    """Make kafka-python close a socket whose connection failed, until the patch is undone."""
    connect = KafkaNetSocket.sock_connect

    @functools.wraps(connect)
    async def connect_or_close(
        self: KafkaNetSocket, net: Any, sock: socket.socket, *args: Any, **options: Any
    ) -> socket.socket:
        try:
            return await connect(self, net, sock, *args, **options)  # type: ignore[no-any-return]
        except BaseException:
            sock.close()
            raise

    patch.setattr(KafkaNetSocket, "sock_connect", connect_or_close)
