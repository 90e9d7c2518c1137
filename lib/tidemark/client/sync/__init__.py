"""The client without ``await``: the async classes of `tidemark.client` over background threads.

Each client owns one thread, from construction until ``close`` (or the end of ``with``). Calls from
several threads are allowed. Each costs a hop to the loop, so send many records with
``Producer.send_many``.

`loop` derives the methods from those of the async classes, with their signatures and docstrings;
the other modules list them, and add what only a thread needs. Called by applications and Spark
jobs. Uses every other package of the client; none of them imports this one.
"""

from typing import TYPE_CHECKING, Any

from tidemark.client.sync.admin import Admin
from tidemark.client.sync.consumer import Consumer
from tidemark.client.sync.producer import Producer, SyncDelivery
from tidemark.client.sync.range_reader import RangeReader
from tidemark.client.sync.share_consumer import ShareConsumer, make_consumer

if TYPE_CHECKING:
    from tidemark.client.sync.sink_batches import BatchWriter, SinkBatches
    from tidemark.client.sync.transactions import (
        TransactionalProducer,
        TransactionHandle,
        Transactions,
        Writer,
    )

__all__ = [
    "Admin",
    "BatchWriter",
    "Consumer",
    "Producer",
    "RangeReader",
    "ShareConsumer",
    "SinkBatches",
    "SyncDelivery",
    "TransactionHandle",
    "TransactionalProducer",
    "Transactions",
    "Writer",
    "make_consumer",
]

_SINKS = ("BatchWriter", "SinkBatches")
_TRANSACTIONS = ("TransactionHandle", "TransactionalProducer", "Transactions", "Writer")


def __getattr__(name: str) -> Any:
    """Load the transactional classes on first use: they import gRPC."""
    if name in _SINKS:
        from tidemark.client.sync import sink_batches

        return getattr(sink_batches, name)
    if name in _TRANSACTIONS:
        from tidemark.client.sync import transactions

        return getattr(transactions, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
