"""Producers and consumers over a cluster in memory."""

from collections.abc import Coroutine
from typing import Any, TypeVar

import uvloop
from tidemark.client.config import ConsumerConfig, ProducerConfig
from tidemark.client.consumer.consumer import Consumer
from tidemark.client.producer.producer import Producer
from unit.tidemark.client.memory_groups import MemoryGroups
from unit.tidemark.client.memory_transport import MemoryTransport
from virtual_time import LoopClock, run_virtual

Result = TypeVar("Result")


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """In a loop of its own, whose time passes only when all wait for it."""
    return run_virtual(work)


def run_with_sockets(work: Coroutine[Any, Any, Result]) -> Result:
    """In a loop of its own, as services run."""
    return uvloop.run(work)


def producer_on(transport: MemoryTransport, **settings: Any) -> Producer:
    """Quick to retry."""
    partitioner = settings.pop("partitioner", None)
    config = ProducerConfig(retry_backoff_ms=1, retry_backoff_max_ms=2)
    producer = Producer("memory:1", config, partitioner=partitioner, clock=LoopClock(), **settings)
    producer._session._make_transport = lambda group: transport  # type: ignore[method-assign]
    return producer


def member_on(groups: MemoryGroups, **settings: Any) -> Consumer:
    """A consumer of group g over coordinators in memory."""
    consumer = consumer_on(groups.cluster, **{"group_id": "g", **settings})
    consumer._session.kafka = groups.kafka  # type: ignore[method-assign]
    return consumer


def consumer_on(transport: MemoryTransport, **settings: Any) -> Consumer:
    """Quick to retry, reading from the beginning."""
    config = ConsumerConfig(
        retry_backoff_ms=1,
        retry_backoff_max_ms=2,
        fetch_max_wait_ms=20,
        auto_offset_reset="earliest",
    )
    consumer = Consumer("memory:1", config, clock=LoopClock(), **settings)
    consumer._session._make_transport = lambda group: transport  # type: ignore[method-assign]
    return consumer
