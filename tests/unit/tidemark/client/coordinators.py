"""Serves a test's transaction coordinator over real gRPC; records go to a cluster in memory."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import grpc.aio
from tidemark.client.transactions.multi_writer import Writer
from tidemark.model.topics import TopicPartition
from tidemark_wire.v1 import partition_store_pb2_grpc, txn_pb2_grpc
from unit.tidemark.client.memory_store import MemoryStore
from unit.tidemark.client.memory_transport import MemoryTransport

ZERO = TopicPartition("t", 0)
QUICK: dict[str, Any] = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2}
"""Settings of a client whose retries take no time."""

Coordinator = TypeVar("Coordinator", bound=txn_pb2_grpc.TransactionCoordinatorServicer)


@asynccontextmanager
async def served(coordinator: Coordinator) -> AsyncIterator[tuple[str, Coordinator]]:
    """The address of a server with this coordinator and a partition store, and the coordinator."""
    server = grpc.aio.server()
    port = server.add_insecure_port("127.0.0.1:0")
    address = f"127.0.0.1:{port}"
    txn_pb2_grpc.add_TransactionCoordinatorServicer_to_server(coordinator, server)
    store = MemoryStore(MemoryTransport(), address)
    partition_store_pb2_grpc.add_PartitionStoreServicer_to_server(store, server)
    await server.start()
    try:
        yield address, coordinator
    finally:
        await server.stop(None)


def into(writer: Writer, cluster: MemoryTransport) -> Writer:
    """The writer, which sends its records to a cluster in memory."""
    writer._session._make_transport = lambda group: cluster  # type: ignore[method-assign]
    return writer
