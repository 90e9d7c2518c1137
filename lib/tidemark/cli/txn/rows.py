"""Rows of ``tidemark txn`` on open transactions."""

from typing import Any

from tidemark.client.admin.group_types import TransactionDescription
from tidemark.plans.hanging_transactions import OpenTransaction

Row = dict[str, Any]


def open_row(found: OpenTransaction, known: TransactionDescription | None, *, now_ms: int) -> Row:
    """Return one line; ``idle_ms`` since the producer's last write, ``open_ms`` according to the
    coordinator.
    """
    partition, producer = found
    started = -1 if known is None else known.started_ms
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "start_offset": producer.current_txn_start_offset,
        "producer_id": producer.producer_id,
        "producer_epoch": producer.producer_epoch,
        "transactional_id": None if known is None else known.transactional_id,
        "state": None if known is None else known.state,
        "open_ms": None if started < 0 else max(0, now_ms - started),
        "idle_ms": max(0, now_ms - producer.last_timestamp_ms),
    }


def holder_row(
    found: OpenTransaction,
    known: TransactionDescription | None,
    *,
    held_since_ms: int | None,
    now_ms: int,
) -> Row:
    """Return one line on the holder of a last stable offset; ``held_ms`` since the first record of
    its transaction there, None if unknown.
    """
    row = open_row(found, known, now_ms=now_ms)
    row["held_ms"] = None if held_since_ms is None else max(0, now_ms - held_since_ms)
    return row
