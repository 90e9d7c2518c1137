"""TopicsView: the topics of a process's metadata, for cores that decide by name and by id."""

from collections.abc import Collection

from tidemark.model.ids import TopicId
from tidemark.model.metadata import TopicImage
from tidemark.runtime.metadata_cache import MetadataCache


class TopicsView:
    """Topics of the newest metadata."""

    def __init__(self, metadata: MetadataCache) -> None:
        self._metadata = metadata

    @property
    def position(self) -> int:
        """Number that rises with every change of metadata."""
        epoch, version = self._metadata.image.position
        return (epoch << 40) + version

    def _topic(self, name: str) -> TopicImage | None:
        return self._metadata.image.topics.get(name)

    def topic_id_of(self, name: str) -> TopicId | None:
        """See Topics."""
        topic = self._topic(name)
        return None if topic is None else topic.topic_id

    def name_of(self, topic_id: TopicId) -> str | None:
        """See Topics."""
        topic = self._metadata.image.topics_by_id.get(topic_id)
        return None if topic is None else topic.name

    def partition_count(self, name: str) -> int:
        """See Topics."""
        topic = self._topic(name)
        return 0 if topic is None else len(topic.partitions)

    def names(self) -> Collection[str]:
        """See Topics."""
        return self._metadata.image.topics.keys()
