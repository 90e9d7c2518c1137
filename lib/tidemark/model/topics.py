"""Topics and partitions by name, and Kafka's rule for a topic's name."""

import re
from base64 import urlsafe_b64encode
from collections.abc import Collection
from typing import Final, NamedTuple, Protocol

from tidemark.model.ids import TopicId

TOPIC_NAME_CHARS_MAX: Final = 249
CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"
AUDIT_LOG: Final = "__audit_log"
INTERNAL_TOPICS: Final = frozenset(
    {CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE, AUDIT_LOG}
)
"""Topics with the state of groups and transactions, and with audit events. Brokers create them when
they first need them.
As in Kafka, clients may create them earlier with other counts, and may read but not write them.
"""
_LEGAL_NAME: Final = re.compile(r"[a-zA-Z0-9._-]+")


class TopicPartition(NamedTuple):
    """One partition of one topic, by name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        """Return Kafka's form, also the name of the partition's directory: ``orders-3``."""
        return f"{self.topic}-{self.partition}"


def topic_id_text(topic_id: bytes) -> str:
    """Return a topic id as Kafka's tools print it: base64 for URLs, without padding."""
    return urlsafe_b64encode(topic_id).decode().rstrip("=")


def topic_name_problem(name: str) -> str | None:
    """Return a message for an invalid topic name; None for a valid one."""
    if not name:
        return "a topic name must not be empty"
    if name in (".", ".."):
        return "a topic name must not be '.' or '..'"
    if len(name) > TOPIC_NAME_CHARS_MAX:
        return (
            f"a topic name has at most {TOPIC_NAME_CHARS_MAX} characters, this one has {len(name)}"
        )
    if _LEGAL_NAME.fullmatch(name) is None:
        return f"topic name {name!r}: only ASCII letters, digits, '.', '_' and '-' are allowed"
    return None


def metric_name(name: str) -> str:
    """Return a topic's name in metrics. Of names that collide there only one may exist."""
    return name.replace(".", "_")


class Topics(Protocol):
    """Topics of the cluster, as of the latest metadata of a service."""

    @property
    def position(self) -> int:
        """Feed position; rises whenever topics may have changed."""
        ...

    def topic_id_of(self, name: str) -> TopicId | None:
        """Return the topic's id, or None if the metadata have no such topic."""
        ...

    def name_of(self, topic_id: TopicId) -> str | None:
        """Return the topic's name, or None if the metadata have no such topic."""
        ...

    def partition_count(self, name: str) -> int:
        """Return the topic's partition count; 0 if there is no such topic."""
        ...

    def names(self) -> Collection[str]:
        """Return the names of all topics, internal ones included."""
        ...
