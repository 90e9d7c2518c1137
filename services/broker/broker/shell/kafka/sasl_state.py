"""SaslHandshake (17) and SaslAuthenticate (36) where no login is under way.

A listener without SASL, and one whose connection is authenticated, refuse them, as Kafka does. The
login itself is in ``listener/sasl_router.py``.
"""

from __future__ import annotations

from tidemark.kafka.long_tail import Struct
from tidemark.model.errors import ErrorCode

from broker.shell.request_context import RequestContext

_CODE = int(ErrorCode.ILLEGAL_SASL_STATE)


async def handshake(_: Struct, __: RequestContext) -> dict[str, object]:
    """Refuse the handshake."""
    return {"error_code": _CODE, "mechanisms": []}


async def authenticate(_: Struct, __: RequestContext) -> dict[str, object]:
    """Refuse the token."""
    message = "SaslAuthenticate request received without a SaslHandshake that was accepted"
    return {"error_code": _CODE, "error_message": message, "auth_bytes": b""}
