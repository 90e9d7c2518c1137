"""Role of a replica, and the refusals of requests that need another role or leader epoch."""

from enum import Enum
from typing import Final

from tidemark.model.errors import ErrorCode

from broker.core.batch_rules import Refusal


class Role(Enum):
    """Role of a replica."""

    LEADER = "L"
    FOLLOWER = "F"
    OFFLINE = "-"
    """The partition has no leader."""
    FAILED = "!"
    """The log directory failed. The partition is not served until the next start, in any image."""


# Reading a member of an Enum costs as much as a call; these are read several times for each batch.
LEADER: Final = Role.LEADER
FOLLOWER: Final = Role.FOLLOWER

NOT_LEADER: Final = Refusal(
    ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not lead the partition"
)
NOT_FOLLOWER: Final = Refusal(
    ErrorCode.NOT_LEADER_OR_FOLLOWER, "this broker does not follow the partition"
)
FAILED: Final = Refusal(
    ErrorCode.KAFKA_STORAGE_ERROR, "the log directory is out of service: see the broker's log"
)
FENCED: Final = Refusal(
    ErrorCode.FENCED_LEADER_EPOCH, "the leader epoch is older than the leader's"
)
UNKNOWN_EPOCH: Final = Refusal(
    ErrorCode.UNKNOWN_LEADER_EPOCH, "the leader epoch is newer than the leader's"
)


def other_epoch(expected: int, leader_epoch: int) -> Refusal | None:
    """Return the refusal of a request that names another leader epoch (-1: none), else None."""
    if expected in (-1, leader_epoch):
        return None
    return FENCED if expected < leader_epoch else UNKNOWN_EPOCH
