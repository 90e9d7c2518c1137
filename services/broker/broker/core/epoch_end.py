"""The end of the records of a leader epoch, for clients that detect truncation (KIP-320), and for
Kafka's followers (KIP-101).
"""

from typing import NamedTuple

from tidemark.model.errors import ErrorCode
from tidemark.model.ids import NO_EPOCH, NO_OFFSET, LeaderEpoch, Offset

from broker.core.partition import Partition
from broker.core.routing import question_refused


class EpochEnd(NamedTuple):
    """The largest epoch that is not above the one asked for, and its end offset (exclusive), or an
    error.
    """

    error_code: ErrorCode = ErrorCode.NONE
    leader_epoch: LeaderEpoch = NO_EPOCH
    end_offset: Offset = NO_OFFSET


def epoch_end(partition: Partition, leader_epoch_expected: int, asked_epoch: int) -> EpochEnd:
    """Return the end of an epoch in the log of a leader, whose own epoch the caller expects (-1:
    any).
    """
    refused = question_refused(partition, leader_epoch_expected)
    if refused is not None:
        return EpochEnd(refused.error_code)
    return EpochEnd(
        ErrorCode.NONE, *partition.epochs.end_offset_for(asked_epoch, partition.log_end)
    )
