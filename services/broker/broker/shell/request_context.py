"""RequestContext: the sender of one Kafka request."""

from dataclasses import dataclass
from typing import Final, NamedTuple

from tidemark.model.authorization import Requester


class Software(NamedTuple):
    """A client's software, as the client names it (KIP-511)."""

    name: str
    version: str


UNKNOWN_SOFTWARE: Final = Software("unknown", "unknown")


@dataclass(slots=True)
class RequestContext:
    """Sender and version of one request; forwarded with every relayed request."""

    requester: Requester
    client_id: str | None
    correlation_id: int
    api_version: int
    listener: str
    peer: str
    request_id: str
    software: Software = UNKNOWN_SOFTWARE
