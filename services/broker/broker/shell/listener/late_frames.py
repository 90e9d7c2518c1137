"""Deadline of frames that begin and are not completed.

A connection that sends a byte now and then is never idle, and its half of a large frame keeps a
buffer that others wait for. So a frame has a deadline, by its size. Time in which the broker does
not read from the connection is not counted.
"""

import struct
from typing import Final

from broker.config import BrokerConfig
from broker.shell.listener.connection import Connection

_LENGTH: Final = struct.Struct(">i")
_SEEN_FIRST_MS: Final = 1


def is_late(connection: Connection, passed_ms: int, config: BrokerConfig) -> bool:
    """True if the begun frame should be whole by now; ``passed_ms`` since the last look. The first
    look at a frame only notes it.
    """
    begun = connection.begun_frame
    if begun is None:
        return False
    if not connection.frame_ms:
        connection.frame_ms = _SEEN_FIRST_MS
        return False
    connection.frame_ms += passed_ms
    size = _LENGTH.unpack_from(begun)[0] if len(begun) >= _LENGTH.size else 0
    allowed_ms = config.frame_deadline_ms + size * 1_000 // config.frame_min_bytes_per_s
    return connection.frame_ms > allowed_ms
