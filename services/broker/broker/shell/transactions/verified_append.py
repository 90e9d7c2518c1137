"""Appends of transactional batches whose partition may not be part of the transaction yet.

The coordinator is asked first (KIP-890): whether the partition was added (before transactions v2),
or to add it. Batches of one producer keep their order; other producers of the partition do not
wait.
"""

import asyncio
from collections.abc import Hashable

from tidemark.codec.record_batch import HEADER_BYTES, read_header

from broker.core.batch_rules import has_untrue_timestamp
from broker.core.partition import Refusal
from broker.core.txn_checks import Ask, BatchCheck
from broker.shell.partitions.hosted import AppendOutcome, HostedPartition
from broker.shell.partitions.inspection import InspectedAppend, Inspection, must_inspect
from broker.shell.transactions.txn_verifier import TxnVerifier


def must_verify(hosted: HostedPartition, batch: memoryview | bytes) -> bool:
    """True if the coordinator must be asked about this batch, or is being asked about an earlier
    one.
    """
    if len(batch) < HEADER_BYTES:
        return False
    header = read_header(batch)
    return header.producer_id in hosted.verifying or hosted.partition.needs_verification(header)


class VerifiedAppend:
    """One append that the coordinator verifies first. Make it in the order of requests; ``run`` it
    exactly once.
    """

    def __init__(
        self,
        verifier: TxnVerifier | None,
        inspection: Inspection,
        hosted: HostedPartition,
        batch: bytes,
        *,
        acks: int,
        lane: Hashable,
        transactional_id: str,
        transactions_v2: bool,
        abortable_known: bool = True,
        leader_epoch_expected: int = -1,
    ) -> None:
        """``verifier``: None where transaction.partition.verification.enable is off."""
        self._verifier = verifier
        self._inspection = inspection
        self._hosted = hosted
        self._batch = batch
        self._header = read_header(batch)
        self._acks = acks
        self._lane = lane
        self._transactional_id = transactional_id
        self._transactions_v2 = transactions_v2
        self._abortable_known = abortable_known
        self._leader_epoch_expected = leader_epoch_expected
        self._before = hosted.verifying.get(self._header.producer_id)
        self._over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        hosted.verifying[self._header.producer_id] = self._over

    async def run(self) -> AppendOutcome:
        """Return the outcome of the append."""
        inspection, hosted = self._inspection, self._hosted
        try:
            if self._before is not None:
                await asyncio.shield(self._before)  # it is resolved by the append before
            refused = await self._verify()
            if refused is not None:
                return inspection.appender.refused(hosted, refused)
            untrue = has_untrue_timestamp(self._header)
            if untrue or must_inspect(hosted, self._batch, self._lane):
                return await InspectedAppend(
                    inspection,
                    hosted,
                    self._batch,
                    acks=self._acks,
                    lane=self._lane,
                    leader_epoch_expected=self._leader_epoch_expected,
                ).run()
            # Exactly one batch: the coordinator was not asked about another one behind it.
            return inspection.appender.append_batch(
                hosted,
                memoryview(bytearray(self._batch)),
                self._acks,
                inspection.clock.wall_ms(),
                leader_epoch_expected=self._leader_epoch_expected,
            )
        finally:
            self._over.set_result(None)
            if hosted.verifying.get(self._header.producer_id) is self._over:
                del hosted.verifying[self._header.producer_id]

    async def _verify(self) -> Refusal | None:
        """Ask the coordinator, unless the batch before this one has settled it."""
        verifier, header = self._verifier, self._header
        check = BatchCheck(self._hosted.partition, header, transactions_v2=self._transactions_v2)
        step: Ask | Refusal | None = check.begin(can_ask=verifier is not None)
        while isinstance(step, Ask):
            assert verifier is not None, "only a broker that verifies asks"
            refused = await verifier.ask(
                self._transactional_id,
                header.producer_id,
                header.producer_epoch,
                self._hosted.topic_partition,
                self._hosted.topic_id,
                transactions_v2=self._transactions_v2,
                abortable_known=self._abortable_known,
            )
            step = check.answered(step, refused)
        return step
