"""The sink's clients in a process, and their errors in the sink's words."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from tidemark.client import sink_batches, sync
from tidemark.client.errors import (
    ClientError,
    InvalidTransactionStateError,
    ProducerFencedError,
)
from tidemark.client.sink_batches import BatchId
from tidemark.client.sync_sink_batches import SinkBatches
from tidemark.client.transaction_handle import Transactions

from tidemark_spark.sink_errors import RetiredQueryError, SinkError, StaleCheckpointError
from tidemark_spark.worker_clients import client, discard
from tidemark_spark.write_options import WriteOptions

_DESCRIBE_MS: Final = 1_000


def sink_of(options: WriteOptions) -> SinkBatches:
    """This process's client of sink batches."""
    settings = options.client | {"default_api_timeout_ms": options.api_timeout_ms}
    return client(
        ("sink", options.bootstrap_servers, *sorted(settings.items())),
        lambda: SinkBatches(options.bootstrap_servers, **settings),
    )


def last_batch_of_another(sink: SinkBatches, batch: BatchId) -> int | None:
    """What the query before this one committed last into the sink; None: nothing, or it cannot be
    told now. It is only for a warning, so nobody waits for it.
    """
    try:
        known = sink.describe(batch.sink_id, timeout_ms=_DESCRIBE_MS)
    except ClientError:
        return None
    return known.batch_id if known.query_id != batch.query_id else None


def producer_of(options: WriteOptions) -> sync.Producer:
    """This process's plain producer, for delivery=at-least-once."""
    return client(
        _producer_key(options), lambda: sync.Producer(_kafka_addresses(options), options.config)
    )


def discard_producer(options: WriteOptions) -> None:
    """After a failure: what it still holds must not fail the next task."""
    discard(_producer_key(options))


def _producer_key(options: WriteOptions) -> tuple[object, ...]:
    return ("producer", options.bootstrap_servers, *sorted(options.producer.items()))


def _kafka_addresses(options: WriteOptions) -> list[str]:
    async def ask() -> list[str]:
        async with Transactions(options.bootstrap_servers, **options.client) as some:
            return await some.kafka_addresses()

    return asyncio.run(ask())


@contextmanager
def said_clearly(doing: str) -> Iterator[None]:
    """A client's error as the sink's: one line what, one line what to try."""
    try:
        yield
    except sink_batches.BatchCommittedError:
        raise  # no failure: who writes it leaves the batch out
    except sink_batches.StaleBatchError as problem:
        raise StaleCheckpointError(
            f"{doing} was refused: {problem}",
            "restore the newest checkpoint. To write everything that follows the old one again,"
            " start a new query with an empty checkpoint",
        ) from problem
    except sink_batches.RetiredQueryError as problem:
        raise RetiredQueryError(
            f"{doing} was refused: {problem}",
            "stop this query: a newer one with the same sink.id writes now. To have both, give"
            " each a sink.id of its own",
        ) from problem
    except InvalidTransactionStateError as problem:
        raise SinkError(
            f"{doing} failed: {_without_hint(problem)}",
            "start the query again: it writes the batch anew, and nothing of it is visible yet. If"
            " all its tasks paused for longer than transaction.timeout.ms, raise that option",
        ) from problem
    except ProducerFencedError as problem:
        raise SinkError(
            f"{doing} failed: {_without_hint(problem)}",
            "the batch ended meanwhile: another run of it was committed, or its tasks paused for"
            " longer than transaction.timeout.ms. The task's next try, or the query's next start,"
            " finds out which and goes on from there",
        ) from problem
    except ClientError as problem:
        what = f"{doing} failed: {_without_hint(problem)}"
        raise SinkError(what, problem.hint) from problem


def _without_hint(problem: ClientError) -> str:
    """It is said on a line of its own."""
    return str(problem).replace(f"; {problem.hint}", "") if problem.hint else str(problem)
