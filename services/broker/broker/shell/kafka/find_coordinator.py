"""FindCoordinator (10): nobody coordinates groups or transactions yet.

It is served all the same, because librdkafka takes lz4 to be supported only where version 0 of it
is advertised, and otherwise sends the batches of lz4 producers uncompressed, without a word. No
version above 0 is advertised: there transactional producers begin, and theirs fail at once by that.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import Struct
from tidemark.model.errors import ErrorCode

if TYPE_CHECKING:
    from broker.shell.node import BrokerNode
    from broker.shell.request_router import RequestContext

ADVERTISED_MAX: Final = 0
BATCHED_FROM: Final = 4
"""Several keys in a request (KIP-699)."""
GROUP: Final = 0


async def handle(_: BrokerNode, request: Struct, context: RequestContext) -> dict[str, object]:
    """The same for every key of a kind; there is nothing to authorize."""
    nobody = _nobody(request.key_type)
    if context.api_version >= BATCHED_FROM:
        return {"coordinators": [{"key": key, **nobody} for key in request.coordinator_keys]}
    return nobody


def _nobody(key_type: int) -> dict[str, object]:
    code = ErrorCode.UNSUPPORTED_VERSION
    if key_type == GROUP:
        # librdkafka's consumers ask for their group's coordinator even when they only assign
        # partitions: a final error would reach a user who never wanted a group.
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    return {
        "error_code": int(code),
        "error_message": "Consumer groups and transactions are not served.",
        "node_id": -1,
        "host": "",
        "port": -1,
    }


HANDLED: Final = ((ApiKey.FIND_COORDINATOR, handle),)
