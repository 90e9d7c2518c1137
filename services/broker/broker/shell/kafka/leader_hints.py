"""Hints of the current leader (KIP-951), for answers about partitions that this broker does not
lead.
"""

from tidemark.kafka.primitives import NodeEndpoint
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerId, TopicId
from tidemark.runtime.metadata_cache import MetadataCache

HINTED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


def current_leader(
    metadata: MetadataCache, topic: str, topic_id: bytes, partition: int
) -> tuple[int, int] | None:
    """Return (leader id, leader epoch) of this broker's image."""
    images = metadata.image
    known = images.topics.get(topic) if topic else images.topics_by_id.get(TopicId(topic_id))
    if known is None or not 0 <= partition < len(known.partitions):
        return None
    state = known.partitions[partition]
    return state.leader, state.leader_epoch


def endpoints(metadata: MetadataCache, listener: str, leaders: set[int]) -> list[NodeEndpoint]:
    """Return the addresses of those leaders on the listener that the client uses."""
    found = []
    for leader in sorted(leaders):
        broker = metadata.image.brokers.get(BrokerId(leader))
        endpoint = broker.endpoint(listener) if broker is not None else None
        if broker is not None and endpoint is not None:
            found.append(NodeEndpoint(leader, endpoint.host, endpoint.port, broker.rack))
    return found
