"""Transaction of one producer: its states, with Kafka's names, and the moves between them.

A move takes the record in force and returns the next one; nothing changes until that is replayed.
``docs/states/transaction.mmd`` is drawn from the table.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tidemark.codec.txn_records import TransactionRecord, TransactionState
from tidemark.model.topics import TopicPartition

EMPTY: Final = TransactionState.EMPTY
ONGOING: Final = TransactionState.ONGOING
PREPARE_COMMIT: Final = TransactionState.PREPARE_COMMIT
PREPARE_ABORT: Final = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT: Final = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT: Final = TransactionState.COMPLETE_ABORT
DEAD: Final = TransactionState.DEAD
PREPARE_EPOCH_FENCE: Final = TransactionState.PREPARE_EPOCH_FENCE

# fmt: off
VALID_PREVIOUS: Final[Mapping[TransactionState, frozenset[TransactionState]]] = {
    EMPTY:               frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    ONGOING:             frozenset({EMPTY, ONGOING, COMPLETE_COMMIT, COMPLETE_ABORT}),
    PREPARE_COMMIT:      frozenset({ONGOING}),
    # From Empty and Complete: a v2 client aborts if it is uncertain whether it wrote anything.
    PREPARE_ABORT:       frozenset({ONGOING, PREPARE_EPOCH_FENCE, EMPTY, COMPLETE_COMMIT,
                                    COMPLETE_ABORT}),
    COMPLETE_COMMIT:     frozenset({PREPARE_COMMIT}),
    COMPLETE_ABORT:      frozenset({PREPARE_ABORT}),
    # Written as a tombstone.
    DEAD:                frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    # Between two steps of one decision, never written: the epoch is raised, then the abort begins.
    PREPARE_EPOCH_FENCE: frozenset({ONGOING}),
}
# fmt: on

PREPARED: Final = frozenset({PREPARE_COMMIT, PREPARE_ABORT})
"""The outcome is decided, and markers are on their way."""
OPEN: Final = frozenset({ONGOING, *PREPARED})
"""Readers may be waiting for the end."""

NO_EPOCH: Final = -1
EPOCH_MAX: Final = 2**15 - 1
CLIENT_EPOCH_MAX: Final = EPOCH_MAX - 1
"""Highest epoch of a client. The one above is kept, so that every client can be fenced."""


def may_move(previous: TransactionState, following: TransactionState) -> bool:
    """True if the table has this move."""
    return previous in VALID_PREVIOUS[following]


def later(record_updated_at: int, wall_ms: int) -> int:
    """Return the time of the next record: now, but later than the last one's even if the clock
    stands still or goes back, because the time identifies the record.
    """
    return max(wall_ms, record_updated_at + 1)


def is_exhausted(producer_epoch: int) -> bool:
    """True if no client can get the epoch after this one."""
    return producer_epoch >= CLIENT_EPOCH_MAX


def may_write(record: TransactionRecord, producer_epoch: int) -> bool:
    """True if the epoch is that of the current session. The highest epoch has no session: it only
    fences.
    """
    return producer_epoch == record.producer_epoch <= CLIENT_EPOCH_MAX


def new_session(
    transactional_id: str, producer_id: int, timeout_ms: int, wall_ms: int
) -> TransactionRecord:
    """Return the first session of a transactional id."""
    return TransactionRecord(transactional_id, producer_id, 0, timeout_ms, EMPTY, wall_ms)


def next_session(
    record: TransactionRecord, timeout_ms: int, wall_ms: int, *, last_producer_epoch: int
) -> TransactionRecord:
    """Return the next session, with the same producer id and the next epoch, which fences all
    sessions before.
    """
    assert not is_exhausted(record.producer_epoch), record
    return _moved(
        record,
        replace(
            record,
            state=EMPTY,
            producer_epoch=record.producer_epoch + 1,
            timeout_ms=timeout_ms,
            updated_at=later(record.updated_at, wall_ms),
            started_at=-1,
            partitions=frozenset(),
            last_producer_epoch=last_producer_epoch,
        ),
    )


def rotated_session(
    record: TransactionRecord,
    producer_id: int,
    timeout_ms: int,
    wall_ms: int,
    *,
    last_producer_epoch: int,
) -> TransactionRecord:
    """Return the next session with a new producer id: the epochs of the old one are used up."""
    return _moved(
        record,
        replace(
            record,
            state=EMPTY,
            producer_id=producer_id,
            producer_epoch=0,
            timeout_ms=timeout_ms,
            updated_at=later(record.updated_at, wall_ms),
            started_at=-1,
            partitions=frozenset(),
            last_producer_epoch=last_producer_epoch,
        ),
    )


def extended(
    record: TransactionRecord,
    partitions: frozenset[TopicPartition],
    wall_ms: int,
    *,
    client_version: int,
) -> TransactionRecord:
    """Return the transaction with these partitions too. Opens a transaction if none is open."""
    return _moved(
        record,
        replace(
            record,
            state=ONGOING,
            updated_at=later(record.updated_at, wall_ms),
            started_at=record.started_at if record.state is ONGOING else wall_ms,
            partitions=record.partitions | partitions,
            client_version=client_version,
        ),
    )


def fenced(record: TransactionRecord, *, last_producer_epoch: int = NO_EPOCH) -> TransactionRecord:
    """Return the record with the current epoch fenced. ``last_producer_epoch`` is the epoch of the
    request, if it came from the current session itself.
    """
    assert record.producer_epoch < EPOCH_MAX, record
    return _moved(
        record,
        replace(
            record,
            state=PREPARE_EPOCH_FENCE,
            producer_epoch=record.producer_epoch + 1,
            last_producer_epoch=last_producer_epoch,
        ),
    )


def prepared_v1(record: TransactionRecord, wall_ms: int, *, commit: bool) -> TransactionRecord:
    """Return the decided outcome by the rules before KIP-890: the epoch stays."""
    return _moved(
        record,
        replace(
            record,
            state=PREPARE_COMMIT if commit else PREPARE_ABORT,
            updated_at=later(record.updated_at, wall_ms),
            client_version=0,
        ),
    )


def prepared_v2(
    record: TransactionRecord, wall_ms: int, *, commit: bool, next_producer_id: int
) -> TransactionRecord:
    """Return the decided outcome with the epoch raised: markers fence writes of this transaction
    that are still under way. ``next_producer_id`` takes over after the last epoch; otherwise -1.
    """
    return _moved(
        record,
        replace(
            record,
            state=PREPARE_COMMIT if commit else PREPARE_ABORT,
            producer_epoch=record.producer_epoch + 1,
            last_producer_epoch=record.producer_epoch,
            next_producer_id=next_producer_id,
            updated_at=later(record.updated_at, wall_ms),
            started_at=record.started_at if record.state is ONGOING else wall_ms,
            client_version=2,
        ),
    )


def prepared_abort_of_fenced(record: TransactionRecord, wall_ms: int) -> TransactionRecord:
    """Return the abort that ``fenced`` began. Its epoch is raised already, as the rules of v2 have
    it.
    """
    assert record.state is PREPARE_EPOCH_FENCE, record
    updated_at = later(record.updated_at, wall_ms)
    following = replace(record, state=PREPARE_ABORT, updated_at=updated_at, client_version=2)
    return _moved(record, following)


def completed(record: TransactionRecord, wall_ms: int) -> TransactionRecord:
    """Return the record of the transaction once all markers are written."""
    producer_id, producer_epoch = successor(record)
    return _moved(
        record,
        replace(
            record,
            state=COMPLETE_COMMIT if record.state is PREPARE_COMMIT else COMPLETE_ABORT,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            next_producer_id=-1,
            updated_at=later(record.updated_at, wall_ms),
            partitions=frozenset(),
        ),
    )


def successor(record: TransactionRecord) -> tuple[int, int]:
    """Return producer id and epoch of the transaction after this one."""
    if record.next_producer_id != -1:
        return record.next_producer_id, 0
    return record.producer_id, record.producer_epoch


def is_followed_by(record: TransactionRecord, producer_id: int, producer_epoch: int) -> bool:
    """True for the producer of the next transaction while this one is being ended. It may have a
    new producer id, which came with the response to EndTxn.
    """
    return (
        record.state in PREPARED
        and (producer_id, producer_epoch) == successor(record)
        and producer_epoch <= CLIENT_EPOCH_MAX
    )


def _moved(record: TransactionRecord, following: TransactionRecord) -> TransactionRecord:
    assert may_move(record.state, following.state), (record, following)
    if following.state is PREPARE_EPOCH_FENCE:
        return following
    return replace(following, previous_producer_id=record.producer_id)
