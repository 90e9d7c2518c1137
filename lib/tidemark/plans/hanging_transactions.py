"""Hanging transactions. Pure.

A transaction is open in a partition until its marker is written. The coordinator writes it at the
latest after the producer's timeout. A transaction that is open for longer than any allowed timeout,
and is not on any coordinator's list, hangs: it holds back the last stable offset without end
(KIP-664).
"""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from tidemark.client.admin.group_types import OPEN_STATES, TransactionDescription
from tidemark.client.admin.types import ProducerState
from tidemark.model.topics import TopicPartition


class OpenTransaction(NamedTuple):
    """Open transaction of one producer in one partition."""

    partition: TopicPartition
    producer: ProducerState


def suspects(
    open_now: Mapping[TopicPartition, list[ProducerState]], *, now_ms: int, timeout_ms_max: int
) -> list[OpenTransaction]:
    """Return the transactions whose last write is longer ago than any transaction may be open."""
    return [
        OpenTransaction(partition, producer)
        for partition, producers in sorted(open_now.items())
        for producer in producers
        if now_ms - producer.last_timestamp_ms > timeout_ms_max
    ]


def hanging(
    found: Iterable[OpenTransaction], known: Mapping[int, TransactionDescription]
) -> list[OpenTransaction]:
    """Return the transactions that no coordinator will end. ``known`` has the coordinators'
    descriptions by producer id.
    """
    return [each for each in found if not _will_end(each, known.get(each.producer.producer_id))]


def _will_end(found: OpenTransaction, known: TransactionDescription | None) -> bool:
    if known is None or known.state not in OPEN_STATES:
        return False
    return found.partition in known.partitions
