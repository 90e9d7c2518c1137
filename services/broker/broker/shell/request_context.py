"""RequestContext: the sender of one Kafka request."""

from dataclasses import dataclass


@dataclass(slots=True)
class RequestContext:
    """The sender of one request and the request's version; forwarded on every relayed request."""

    principal: str
    client_id: str | None
    correlation_id: int
    api_version: int
    listener: str
    peer: str
    request_id: str
