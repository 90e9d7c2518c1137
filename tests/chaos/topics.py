"""The topics of a run: plain ones, those of transactions and their copy, the coordinators' own."""

from collections.abc import Mapping
from typing import Final

from chaos.cluster import BROKERS, INTERNAL_PARTITIONS, START_S, ChaosCluster, wait_none
from chaos.history import Partition
from chaos.share_copying import GROUP as COPIERS
from chaos.sharing import configure, create_group
from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from e2e.bounded_librdkafka import BoundedConsumer as Consumer
from tidemark.model.topics import CONSUMER_OFFSETS, SHARE_GROUP_STATE, TRANSACTION_STATE
from waiting import PATIENCE_S

PLAIN: Final = {"chaos-os": (4, "os"), "chaos-group": (2, "group")}
"""Partitions and flush policy."""
SOURCE: Final = "chaos-txn-a"
COPY: Final = "chaos-copies"
TRANSACTIONAL: Final = {SOURCE: (3, "os"), "chaos-txn-b": (3, "group")}
"""What transactions are written to; SOURCE is copied to COPY."""
COPIES: Final = {COPY: (2, "os")}
SHARE_COPIES: Final = {"chaos-share-copies": (1, "os")}
"""What a member of another share group copies SHARED to."""


def partitions_of(topics: Mapping[str, tuple[int, object]]) -> tuple[Partition, ...]:
    """All of them, in order."""
    return tuple(
        Partition(topic, number) for topic, (count, _) in topics.items() for number in range(count)
    )


PLAIN_PARTITIONS: Final = partitions_of(PLAIN)
SHARED: Final = "chaos-group"
"""What the members of the share group read."""
SHARED_PARTITIONS: Final = tuple(one for one in PLAIN_PARTITIONS if one.topic == SHARED)
TRANSACTIONAL_PARTITIONS: Final = partitions_of(TRANSACTIONAL)
COPY_PARTITIONS: Final = partitions_of(COPIES)
(SHARE_COPY_PARTITION,) = SHARE_COPY_PARTITIONS = partitions_of(SHARE_COPIES)
DATA_PARTITIONS: Final = (
    PLAIN_PARTITIONS + TRANSACTIONAL_PARTITIONS + COPY_PARTITIONS + SHARE_COPY_PARTITIONS
)
STATE_PARTITIONS: Final = partitions_of({TRANSACTION_STATE: (INTERNAL_PARTITIONS, None)})
OFFSETS_PARTITIONS: Final = partitions_of({CONSUMER_OFFSETS: (INTERNAL_PARTITIONS, None)})
SHARE_PARTITIONS: Final = partitions_of({SHARE_GROUP_STATE: (INTERNAL_PARTITIONS, None)})
PARTITIONS: Final = DATA_PARTITIONS + STATE_PARTITIONS + OFFSETS_PARTITIONS + SHARE_PARTITIONS
NAMES: Final = tuple(dict.fromkeys(partition.topic for partition in PARTITIONS))


def create_topics(cluster: ChaosCluster) -> None:
    """And wait until every broker shows full ISRs. The coordinators' topics are made as soon as
    somebody asks for a coordinator.
    """
    bootstrap: dict[str, str | int | float | bool] = {"bootstrap.servers": cluster.bootstrap}
    admin = AdminClient(bootstrap)
    for created in admin.create_topics(_new_topics()).values():
        created.result(PATIENCE_S)
    producer = Producer({**bootstrap, "transactional.id": "chaos-first"})
    producer.init_transactions(START_S)
    consumer = Consumer({**bootstrap, "group.id": "chaos-first", "enable.auto.commit": False})
    try:
        consumer.committed([TopicPartition(*DATA_PARTITIONS[0])], START_S)
    finally:
        consumer.close()
    create_group(cluster.bootstrap, SHARED)
    configure(cluster.bootstrap, COPIERS)
    wait_none(lambda: cluster.wounds(NAMES, len(PARTITIONS)), "creating the topics")


def _new_topics() -> list[NewTopic]:
    return [
        NewTopic(
            name,
            num_partitions=count,
            replication_factor=BROKERS,
            config={
                "min.insync.replicas": "2",
                "flush": flush,
                "segment.bytes": str(1 << 20),
                "retention.ms": "-1",
            },
        )
        for name, (count, flush) in (PLAIN | TRANSACTIONAL | COPIES | SHARE_COPIES).items()
    ]
