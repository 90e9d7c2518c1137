"""Calls of ``tidemark txn`` about sinks, over gRPC."""

from collections.abc import Sequence

from tidemark.cli.failure import CommandError
from tidemark.cli.reach import reach_over_grpc
from tidemark.cli.security import security_over_grpc
from tidemark.cli.txn.rows import Row
from tidemark.client.errors import TransactionalIdNotFoundError
from tidemark.client.transactions.sink_batches import SinkBatches, SinkDescription


async def describe(bootstrap: str, transactional_ids: Sequence[str]) -> dict[str, Row]:
    """Return the rows of those ids that are sinks. ``bootstrap``: gRPC addresses."""
    found: dict[str, Row] = {}
    async with SinkBatches(bootstrap, **security_over_grpc(bootstrap)) as sinks:
        for name in transactional_ids:
            try:
                found[name] = sink_row(await sinks.describe(name))
            except TransactionalIdNotFoundError:
                continue  # not a sink
    return found


def sink_row(sink: SinkDescription) -> Row:
    """Return the columns that sinks have in addition to those of transactional ids."""
    return {
        "query_id": sink.query_id,
        "committed_batch": sink.batch_id,
        "open_batch": sink.open_batch,
        "note": sink.note,
        "retired_queries": list(sink.retired),
    }


async def forget(bootstrap: str, sink_id: str, *, abort_open: bool) -> list[Row]:
    """Delete the state of a sink. ``bootstrap``: gRPC addresses."""
    await reach_over_grpc(bootstrap)
    async with SinkBatches(bootstrap, **security_over_grpc(bootstrap)) as sinks:
        if not await sinks.forget(sink_id, abort_open=abort_open):
            raise CommandError(
                f"no batch was ever written to a sink {sink_id!r}",
                hint="tidemark txn list shows all transactional ids",
            )
    return [{"sink_id": sink_id, "outcome": "forgotten"}]
