"""HeldShare: one share-partition at its leader, with its partition and configuration."""

from typing import Final

from tidemark.model.ids import InstantMs, Offset
from tidemark.model.share_group_configs import IsolationLevel, ShareGroupConfig
from tidemark.model.share_state import LogEpochs

from broker.core.parked import ParkedRequest
from broker.core.partition import Role
from broker.core.share.acknowledgement import Answer
from broker.core.share.batch_keys import KeyCache
from broker.core.share.dead_letters import DeadLetters
from broker.core.share.loading import Loading
from broker.core.share.sessions import PartitionKey
from broker.core.share.share_partition import SharePartition
from broker.core.share.states import Phase
from broker.shell.partitions.hosted import HostedPartition

LOG_EPOCHS_MAX: Final = 200
"""Leader epochs of a log that a share-coordinator gets."""


def log_epochs(hosted: HostedPartition) -> LogEpochs:
    """Return the latest leader epochs of a log. Fewer than all of them find less of what a state
    has to lose, and nothing else.
    """
    log = hosted.log
    return LogEpochs(log.epochs.entries()[-LOG_EPOCHS_MAX:], Offset(log.log_end))


def is_committed_only(config: ShareGroupConfig) -> bool:
    """Return True if a group reads committed records only."""
    return config.isolation_level is IsolationLevel.READ_COMMITTED


def readable_end(hosted: HostedPartition, config: ShareGroupConfig) -> int:
    """Return the end, exclusive, of the records that a group may read."""
    partition = hosted.partition
    return partition.last_stable if is_committed_only(config) else partition.bounds.high_watermark


class HeldShare:
    """A share-partition, from the first fetch of its group to the end of this leader's epoch."""

    __slots__ = (
        "config",
        "group_id",
        "hosted",
        "is_committed_only",
        "is_dropped",
        "is_wanted",
        "is_woken",
        "keys",
        "letters",
        "loading",
        "partition_key",
        "share",
        "watch",
    )

    def __init__(
        self,
        share: SharePartition,
        hosted: HostedPartition,
        config: ShareGroupConfig,
        loading: Loading,
        letters: DeadLetters,
    ) -> None:
        self.share = share
        self.letters = letters
        self.hosted = hosted
        self.group_id = share.key.group_id
        self.partition_key: PartitionKey = share.key.topic_id, share.key.partition
        self.configure(config)
        self.loading = loading
        self.keys = KeyCache()
        """Keys of batches, if its group orders records by key."""
        self.watch: ParkedRequest | None = None
        """Set while fetches wait: wakes them when the partition gains readable records."""
        self.is_wanted = False
        """True if its state is to be read, although no fetch waits."""
        self.is_woken = False
        """True if its waiting fetches are to be looked at, at the end of the turn."""
        self.is_dropped = False
        """True once another object may stand for the same share-partition."""

    def configure(self, config: ShareGroupConfig) -> None:
        """Use another configuration of the group from now on."""
        self.config = config
        self.is_committed_only = is_committed_only(config)
        """True if its group reads committed records only."""

    @property
    def is_led(self) -> bool:
        """True while this broker leads the partition in the epoch of the share-partition."""
        partition = self.hosted.partition
        is_leader = partition.role is Role.LEADER
        return is_leader and partition.leader_epoch == self.share.leader_epoch

    @property
    def readable_end(self) -> int:
        """End, exclusive, of the records that its group may read."""
        partition = self.hosted.partition
        if self.is_committed_only:
            return partition.last_stable
        return partition.bounds.high_watermark

    def problem(self) -> Answer | None:
        """Return the error of a fetch; None if there are records, or may be after a wait."""
        return self.loading.problem(self.share.phase)

    def may_have_records(self, member: str, now: InstantMs) -> bool:
        """Return True if a fetch of this member may get records or an error."""
        if self.share.phase is not Phase.ACTIVE or not self.is_led:
            return self.problem() is not None or not self.is_led
        plan = self.share.plan_read(now, member)
        return plan is not None and plan.first_offset < self.readable_end
