"""The password that a ZooKeeper server gives a session: it follows from the session's id.

ZooKeeperServer.generatePasswd fills 16 bytes from java.util.Random, seeded with the id and a
constant. Whoever knows the id may thus take the session over, and close it: its expiry, at once.
"""

import struct
from typing import Final

PASSWORD_BYTES: Final = 16
_SUPER_SECRET: Final = 0xB3415C00
_MULTIPLIER: Final = 0x5DEECE66D
_MASK: Final = (1 << 48) - 1


def session_password(session_id: int) -> bytes:
    """What to present with that id."""
    state = (session_id ^ _SUPER_SECRET ^ _MULTIPLIER) & _MASK
    words = []
    for _ in range(PASSWORD_BYTES // 4):
        state = (state * _MULTIPLIER + 0xB) & _MASK
        words.append(state >> 16)
    return struct.pack(f"<{len(words)}I", *words)
