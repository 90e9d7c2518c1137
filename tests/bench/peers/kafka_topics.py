"""Topics of a cluster that speaks Kafka's protocol."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from bench.peers.rows import Row
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tidemark.cli.failure import CommandError

_ANSWER_S: Final = 30.0
_WAIT_S: Final = 120.0
_POLL_S: Final = 0.1


def brokers_known(address: str) -> int:
    """Brokers that the metadata of a cluster has; 0 if nobody answers yet."""
    try:
        return len(_admin(address).list_topics(timeout=1.0).brokers)
    except KafkaException:
        return 0


@contextmanager
def topic_of(address: str, name: str, row: Row) -> Iterator[None]:
    """A topic for a load, its replicas in sync; deleted at the end."""
    config = {"min.insync.replicas": str(min(2, row.replicas))}
    wanted = NewTopic(
        name, num_partitions=row.partitions, replication_factor=row.replicas, config=config
    )
    admin = _admin(address)
    for made in admin.create_topics([wanted]).values():
        made.result(_ANSWER_S)
    try:
        _wait_for(lambda: _is_in_sync(admin, name, row), f"topic {name} of {address}")
        yield
    finally:
        for gone in admin.delete_topics([name]).values():
            gone.result(_ANSWER_S)


def _is_in_sync(admin: AdminClient, name: str, row: Row) -> bool:
    found = admin.list_topics(name, timeout=_ANSWER_S).topics[name]
    return len(found.partitions) == row.partitions and all(
        one.leader >= 0 and len(one.isrs) == row.replicas for one in found.partitions.values()
    )


def _wait_for(come: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + _WAIT_S
    while not come():
        if time.monotonic() > deadline:
            raise CommandError(f"{what} was not ready within {_WAIT_S:g} s")
        time.sleep(_POLL_S)


def _admin(address: str) -> AdminClient:
    # librdkafka says at length that a server does not listen yet.
    return AdminClient({"bootstrap.servers": address, "log_level": 0})
