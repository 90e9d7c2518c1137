"""RequestContext: the sender of one Kafka request."""

from dataclasses import dataclass

from tidemark.model.authorization import Requester


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
