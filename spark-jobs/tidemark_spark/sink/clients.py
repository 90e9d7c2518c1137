"""The sink's clients in this process, and the translation of their errors."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tidemark.client import sync
from tidemark.client.errors import (
    ClientError,
    InvalidTransactionStateError,
    ProducerFencedError,
)
from tidemark.client.sync.sink_batches import SinkBatches
from tidemark.client.transactions import sink_batches
from tidemark.client.transactions.multi_writer import Transactions
from tidemark.client.transactions.sink_batches import BatchId

from tidemark_spark.sink.errors import RetiredQueryError, SinkError, StaleCheckpointError
from tidemark_spark.sink.write_options import WriteOptions
from tidemark_spark.worker_clients import client, discard

_DESCRIBE_MS: Final = 1_000


def sink_of(options: WriteOptions) -> SinkBatches:
    """Return this process's client for sink batches."""
    settings = options.client | {"default_api_timeout_ms": options.api_timeout_ms}
    return client(
        ("sink", options.bootstrap_servers, *sorted(settings.items())),
        lambda: SinkBatches(options.bootstrap_servers, **settings),
    )


def last_batch_of_another(sink: SinkBatches, batch: BatchId) -> int | None:
    """Return the last batch that another query committed to the sink.

    None if there is none or the lookup fails: it is only for a warning, so it is not retried.
    """
    try:
        known = sink.describe(batch.sink_id, timeout_ms=_DESCRIBE_MS)
    except ClientError:
        return None
    return known.batch_id if known.query_id != batch.query_id else None


def producer_of(options: WriteOptions) -> sync.Producer:
    """Return this process's producer without transactions, for delivery=at-least-once."""
    return client(
        _producer_key(options), lambda: sync.Producer(_kafka_addresses(options), options.config)
    )


def discard_producer(options: WriteOptions) -> None:
    """Close the producer after a failure, so that its unsent records do not fail the next task."""
    discard(_producer_key(options))


def _producer_key(options: WriteOptions) -> tuple[object, ...]:
    return ("producer", options.bootstrap_servers, *sorted(options.producer.items()))


def _kafka_addresses(options: WriteOptions) -> list[str]:
    async def ask() -> list[str]:
        async with Transactions(options.bootstrap_servers, **options.client) as some:
            return await some.kafka_addresses()

    return asyncio.run(ask())


@contextmanager
def translate_client_errors(doing: str) -> Iterator[None]:
    """Raise a client's error within the block as a SinkError with a hint."""
    try:
        yield
    except sink_batches.BatchCommittedError:
        raise  # not a failure: the task skips the batch
    except sink_batches.StaleBatchError as problem:
        raise StaleCheckpointError(
            f"{doing} was refused: {problem}",
            "restore the newest checkpoint. To write everything after the old one again, start a"
            " new query with an empty checkpoint",
        ) from problem
    except sink_batches.RetiredQueryError as problem:
        raise RetiredQueryError(
            f"{doing} was refused: {problem}",
            "stop this query: a newer one with the same sink.id has replaced it. To run both, give"
            " each its own sink.id",
        ) from problem
    except InvalidTransactionStateError as problem:
        raise SinkError(
            f"{doing} failed: {_without_hint(problem)}",
            "start the query again: it writes the batch again, and nothing of it is visible yet."
            " If all tasks paused for longer than transaction.timeout.ms, increase that option",
        ) from problem
    except ProducerFencedError as problem:
        raise SinkError(
            f"{doing} failed: {_without_hint(problem)}",
            "let Spark retry the task, or start the query again; either continues correctly. The"
            " batch has ended, because another run of it was committed or because its tasks paused"
            " for longer than transaction.timeout.ms",
        ) from problem
    except ClientError as problem:
        what = f"{doing} failed: {_without_hint(problem)}"
        raise SinkError(what, problem.hint) from problem


def _without_hint(problem: ClientError) -> str:
    """Return the message without the hint, which is on a line of its own."""
    return str(problem).replace(f"; {problem.hint}", "") if problem.hint else str(problem)
