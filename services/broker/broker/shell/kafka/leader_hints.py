"""Who leads instead (KIP-951): what an answer adds where this broker does not."""

from tidemark.kafka.primitives import NodeEndpoint
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerId, TopicId
from tidemark.runtime.metadata_cache import MetadataCache

HINTED = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


def current_leader(
    metadata: MetadataCache, topic: str, topic_id: bytes, partition: int
) -> tuple[int, int] | None:
    """(leader id, leader epoch) as this broker's image has it."""
    images = metadata.image
    known = images.topics.get(topic) if topic else images.topics_by_id.get(TopicId(topic_id))
    if known is None or not 0 <= partition < len(known.partitions):
        return None
    state = known.partitions[partition]
    return state.leader, state.leader_epoch


def endpoints(metadata: MetadataCache, listener: str, leaders: set[int]) -> list[NodeEndpoint]:
    """Where those leaders are reached through the listener that the client uses."""
    found = []
    for leader in sorted(leaders):
        broker = metadata.image.brokers.get(BrokerId(leader))
        endpoint = broker.endpoint(listener) if broker is not None else None
        if broker is not None and endpoint is not None:
            found.append(NodeEndpoint(leader, endpoint.host, endpoint.port, broker.rack))
    return found
