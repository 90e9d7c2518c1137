"""PartitionTable: the partitions that this broker hosts, by name and by topic id."""

from collections import Counter

from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_TOPIC_ID, BrokerId, TopicId
from tidemark.runtime.metadata_cache import MetadataCache

from broker.core.routing import error_elsewhere
from broker.shell.partitions.hosted import HostedPartition


class PartitionTable:
    """Hosted partitions. ``Hosting`` adds and removes; everything else looks up."""

    def __init__(self, broker_id: BrokerId, metadata: MetadataCache) -> None:
        self._broker_id = broker_id
        self._metadata = metadata
        self.by_name: dict[tuple[str, int], HostedPartition] = {}
        self.by_id: dict[tuple[bytes, int], HostedPartition] = {}
        self._counts: Counter[str] = Counter()
        """Number of hosted partitions of each topic that has any."""

    def hosts_topic(self, name: str) -> bool:
        """True if a partition of the topic is hosted here."""
        return name in self._counts

    def find(self, topic: str, topic_id: bytes, partition: int) -> HostedPartition | ErrorCode:
        """Return the partition by name or (name '') by id if it is hosted here; otherwise the error
        that answers the request.
        """
        if topic:
            found = self.by_name.get((topic, partition))
            if found is not None:
                if topic_id != NO_TOPIC_ID and topic_id != found.topic_id:
                    return ErrorCode.INCONSISTENT_TOPIC_ID
                return found
            known = self._metadata.image.topics.get(topic)
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        else:
            found = self.by_id.get((topic_id, partition))
            if found is not None:
                return found
            known = self._metadata.image.topics_by_id.get(TopicId(topic_id))
            unknown = ErrorCode.UNKNOWN_TOPIC_ID
        return unknown if known is None else error_elsewhere(known, partition, self._broker_id)

    def add(self, hosted: HostedPartition) -> None:
        """Add a partition that is hosted from now on."""
        self.by_name[hosted.topic_partition] = hosted
        self.by_id[hosted.topic_id, hosted.topic_partition.partition] = hosted
        self._counts[hosted.topic_partition.topic] += 1

    def remove(self, hosted: HostedPartition) -> None:
        """Remove a partition that is no longer hosted."""
        del self.by_name[hosted.topic_partition]
        del self.by_id[hosted.topic_id, hosted.topic_partition.partition]
        topic = hosted.topic_partition.topic
        self._counts[topic] -= 1
        if not self._counts[topic]:
            del self._counts[topic]
