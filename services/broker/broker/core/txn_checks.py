"""Checks of transactional batches and of transactional offset commits (KIP-890): if the coordinator
must verify that the partition is part of the transaction, and the meaning of its reply. Before it,
the sender of a batch needs the permission to write in transactions of the id.

    begin --> Ask --> answered --> decision
      |                  |
      v                  v
    decision         Ask: the transaction ended meanwhile (batches only, and not for ever)
"""

from typing import Final, NamedTuple

from tidemark.codec.record_batch import (
    CRC_START,
    HEADER_BYTES,
    MAGIC_POSITION,
    MAGIC_V2,
    TRANSACTIONAL_BIT,
    BatchHeader,
)
from tidemark.model.errors import ErrorCode

from broker.core.groups.group_rules import producer_problem
from broker.core.groups.requests import TxnOffsetCommit
from broker.core.partition import Partition, Refusal

ASKS_MAX: Final = 2
"""Most verifications of one batch. A marker that the coordinator's reply waited for voids it; a
second one is rare.
"""
ENDED_MEANWHILE: Final = Refusal(
    ErrorCode.NOT_ENOUGH_REPLICAS, "the transaction ended while the batch was verified; retry"
)
NOT_ALLOWED: Final = Refusal(
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    "a transactional batch needs a transactional id that its sender may write",
)
_ATTRIBUTES_LOW: Final = CRC_START + 1
_RETRIED: Final = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
"""Error of an offset commit where a batch gets NOT_ENOUGH_REPLICAS: clients retry the commit."""


def claims_transaction(batch: memoryview | None) -> bool:
    """True for a transactional batch. Its request must name a transactional id that the sender may
    write, whatever the state of the partition: an open transaction there is somebody's.
    """
    return (
        batch is not None
        and len(batch) >= HEADER_BYTES
        and batch[_ATTRIBUTES_LOW] & TRANSACTIONAL_BIT != 0
        and batch[MAGIC_POSITION] == MAGIC_V2
    )


class Ask(NamedTuple):
    """Request to verify with the coordinator. Its reply counts while the guard holds."""

    guard: int


class OffsetsCheck:
    """Check of one transactional offset commit to the partition of its group. After NONE the append
    must follow before any other code runs, since a marker may come in between.
    """

    __slots__ = ("_commit", "_partition")

    def __init__(self, partition: Partition, commit: TxnOffsetCommit) -> None:
        self._partition = partition
        self._commit = commit

    def begin(self, *, can_ask: bool) -> Ask | ErrorCode:
        """Return the decision, or Ask. ``can_ask``: True if this broker verifies transactions."""
        problem = producer_problem(self._commit)
        if problem is not ErrorCode.NONE:
            return problem
        producer_id, producer_epoch = self._commit.producer_id, self._commit.producer_epoch
        if can_ask and not self._partition.producers.is_open(producer_id, producer_epoch):
            return Ask(self._partition.verifications.ask(producer_id, producer_epoch))
        return self._partition.producers.check_offsets(producer_id, producer_epoch)

    def answered(self, asked: Ask, refused: Refusal | None) -> ErrorCode:
        """Return the decision after the coordinator's reply: NONE, or the error of the commit.
        ``refused`` is None if the partition is part of the transaction.
        """
        if refused is not None:
            may_pass = refused.error_code is ErrorCode.NOT_ENOUGH_REPLICAS
            return _RETRIED if may_pass else refused.error_code
        producer_id, producer_epoch = self._commit.producer_id, self._commit.producer_epoch
        if not self._partition.verifications.answer(producer_id, asked.guard):
            return _RETRIED
        return self._partition.producers.check_offsets(producer_id, producer_epoch)


class BatchCheck:
    """Check of one transactional batch before it is admitted."""

    __slots__ = ("_asks", "_first_sequence", "_header", "_partition")

    def __init__(self, partition: Partition, header: BatchHeader, *, transactions_v2: bool) -> None:
        self._partition = partition
        self._header = header
        # With transactions v2 each transaction has an epoch of its own, which begins at 0.
        self._first_sequence = 0 if transactions_v2 else header.base_sequence
        self._asks = 0

    def begin(self, *, can_ask: bool) -> Ask | None:
        """Return Ask, or None if the batch may be admitted. ``can_ask``: True if this broker
        verifies transactions; otherwise every producer may begin one.
        """
        if not self._partition.needs_verification(self._header):
            return None
        asked = self._ask()
        if can_ask:
            return asked
        self._partition.verifications.answer(self._header.producer_id, asked.guard)
        return None

    def answered(self, asked: Ask, refused: Refusal | None) -> Ask | Refusal | None:
        """Return the refusal, another Ask, or None if the batch may be admitted."""
        if refused is not None:
            return refused
        if self._partition.verifications.answer(self._header.producer_id, asked.guard):
            return None
        return self._ask() if self._asks < ASKS_MAX else ENDED_MEANWHILE

    def _ask(self) -> Ask:
        self._asks += 1
        header = self._header
        return Ask(
            self._partition.verifications.ask(
                header.producer_id, header.producer_epoch, self._first_sequence
            )
        )
