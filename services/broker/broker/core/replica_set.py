"""ReplicaSet: the replicas of one partition as one of them has them: assigned, in sync, and on the
leader how far each follower is.

A leader decides here which follower lags, which may join the ISR, and which offset all members have
in common. Changes of the ISR count once the controller has written them (``Isr``).
"""

from collections.abc import Mapping
from typing import Final

from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerEpoch, BrokerId, InstantMs, LeaderEpoch, TopicId
from tidemark.model.metadata import PartitionImage

from broker.core.isr import Isr, IsrProposal
from broker.core.replica_progress import FollowerFetch, ReplicaProgress, StandingFetch

_NEVER: Final = InstantMs(-1)
_NEVER_AGREED: Final = (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.INVALID_REQUEST)
"""Refusals that the controller reaches only after it has found both epochs to be current."""


class ReplicaSet:
    """Replicas of one partition. Only a leader has progress of followers and a pending proposal.

    Invariant: ``unfetched`` are the members of the maximal ISR that have not fetched from this
    leader yet.
    """

    __slots__ = (
        "_broker_id",
        "_looked_at",
        "_partition",
        "_topic_id",
        "assigned",
        "isr",
        "progress",
        "unfetched",
    )

    def __init__(self, broker_id: BrokerId, topic_id: TopicId, partition: int) -> None:
        """``broker_id``: the broker that has this replica."""
        self._broker_id = broker_id
        self._topic_id = topic_id
        self._partition = partition
        self._looked_at = _NEVER
        self.assigned: tuple[BrokerId, ...] = ()
        self.isr = Isr()
        self.progress: dict[BrokerId, ReplicaProgress] = {}
        """By follower. Empty unless this replica leads."""
        self.unfetched: tuple[BrokerId, ...] = ()
        """Followers that must have a record before it is committed, and that have not fetched in
        this leader epoch: a fetch of theirs that waits may have begun before it could name this
        partition.
        """

    # -- state from the controller

    def begin_leading(self, state: PartitionImage, now: InstantMs) -> None:
        """Begin a leader epoch with ``state``. Every follower gets one lag time to fetch."""
        self.progress = {}
        self._looked_at = _NEVER
        self.isr.begin(state.isr, state.partition_epoch)
        self._assign(state, now)

    def update(self, state: PartitionImage, now: InstantMs) -> bool:
        """Take over a state of the same leader epoch. False, with nothing changed, unless it is
        newer.
        """
        if not self.isr.take(state.isr, state.partition_epoch):
            return False
        self._assign(state, now)
        return True

    def _assign(self, state: PartitionImage, now: InstantMs) -> None:
        self.assigned = state.replicas
        before = self.progress
        self.progress = {
            replica: before.get(replica) or ReplicaProgress(now)
            for replica in state.replicas
            if replica != self._broker_id
        }
        self._find_unfetched()

    def stop_leading(self) -> None:
        """Drop all that only a leader has."""
        self.progress = {}
        self.isr.refuse()
        self._find_unfetched()

    def follow(self, state: PartitionImage) -> None:
        """Take over the state in which another replica leads."""
        self.assigned = state.replicas
        if state.partition_epoch >= self.isr.partition_epoch:
            self.isr.begin(state.isr, state.partition_epoch)

    # -- fetches of followers

    def is_follower(self, fetch: FollowerFetch) -> bool:
        """True if the fetch comes from a follower, and not from a former incarnation of it."""
        follower = self.progress.get(fetch.broker_id)
        return follower is not None and not -1 < fetch.broker_epoch < follower.broker_epoch

    def fetched(self, fetch: FollowerFetch, leader_end: int, now: InstantMs) -> bool:
        """Note that a follower has all records below the end in its fetch. Return True if that
        counts for the high watermark.
        """
        self.progress[fetch.broker_id].fetched(fetch, leader_end, now)
        if self.unfetched:
            self._find_unfetched()
        return fetch.broker_id in self.isr.maximal

    def fetch_may_stand(
        self, broker_id: BrokerId, fetch_offset: int, standing: StandingFetch, leader_end: int
    ) -> bool:
        """Return True if a follower's empty fetch stands, from now on, for the next ones of its
        session. It does if the follower has all records, and cannot join the ISR by its next fetch:
        it is a member, or proposed as one. A change of the ISR ends that.
        """
        follower = self.progress.get(broker_id)
        return (
            follower is not None
            and fetch_offset >= leader_end
            and not self.may_join_by_fetch(broker_id)
            and follower.stands(standing, leader_end)
        )

    def may_join_by_fetch(self, broker_id: BrokerId) -> bool:
        """Return True if a fetch of this follower is an occasion to propose it for the ISR. The
        other followers outside of the ISR have their own.
        """
        return broker_id not in self.isr.maximal

    def common_end(self, own_end: int, *, synced: bool) -> int:
        """End (exclusive) of the records that every member of the maximal ISR has, of which this
        replica has those below ``own_end``. ``synced``: only records on disk count.
        """
        end = own_end
        for member in self.isr.maximal:
            if member != self._broker_id:
                follower = self.progress.get(member)
                if follower is None:
                    return -1
                counted = follower.synced_end if synced else follower.log_end
                if counted < end:
                    end = counted
        return end

    def common_start(self, own_start: int) -> int:
        """Return the lowest log start of the members of the maximal ISR, of which this replica
        begins at ``own_start``; -1 while one has not fetched in this leader epoch.
        """
        progress = self.progress
        starts = [progress[one].log_start for one in self.isr.maximal if one in progress]
        return min(starts, default=own_start)

    # -- the ISR

    @property
    def is_alone(self) -> bool:
        """True if no other replica must have a record before it is committed."""
        return self.isr.maximal == (self._broker_id,)

    def propose(
        self,
        now: InstantMs,
        live: Mapping[BrokerId, BrokerEpoch],
        lag_ms: int,
        *,
        leader_epoch: LeaderEpoch,
        starts_at: int,
        joins_at: int,
        synced: bool,
    ) -> IsrProposal | None:
        """Return the ISR to ask the controller for, or None if the agreed one is right or a
        proposal is pending. From here on the proposed members count too: the proposal may be agreed
        at any moment.

        ``live``: epoch of every broker that may be in an ISR. ``starts_at``, ``joins_at``: a
        follower joins once its log begins at the first or later, and has all records below the
        second. ``synced``: only records on disk count.
        """
        self._allow_for_pause(now, lag_ms)
        agreed = self.isr.agreed
        if self.isr.pending is not None:
            return None
        stay = [
            member
            for member in agreed
            if member == self._broker_id or not self._lags(member, now, lag_ms)
        ]
        join = [
            replica
            for replica in self.assigned
            if replica not in agreed
            and not self._lags(replica, now, lag_ms)
            and self.progress[replica].log_start >= starts_at
            and self._may_join(replica, live, joins_at, synced=synced)
        ]
        if (*stay, *join) == agreed:
            return None
        proposal = IsrProposal(
            self._topic_id,
            self._partition,
            leader_epoch,
            self.isr.partition_epoch,
            tuple((member, live.get(member, BrokerEpoch(-1))) for member in (*stay, *join)),
        )
        self.isr.propose(proposal)
        self._find_unfetched()
        return proposal

    def next_lag(self, now: InstantMs, lag_ms: int) -> InstantMs | None:
        """Return when the next member of the ISR begins to lag unless it catches up; None if none
        may after ``now``.
        """
        caught_up = [
            self.progress[one].caught_up_at for one in self.isr.agreed if one in self.progress
        ]
        dues = (InstantMs(at + lag_ms + 1) for at in caught_up)
        return min((due for due in dues if due > now), default=None)

    def _allow_for_pause(self, now: InstantMs, lag_ms: int) -> None:
        """Extend followers' time by the leader's own pause: while it stood still for longer than a
        lag, it could not take their fetches.
        """
        pause_ms = now - self._looked_at
        if self._looked_at >= 0 and pause_ms > lag_ms:
            for follower in self.progress.values():
                follower.extend(pause_ms, now)
        self._looked_at = now

    def _lags(self, broker_id: BrokerId, now: InstantMs, lag_ms: int) -> bool:
        follower = self.progress.get(broker_id)
        return follower is None or follower.lags(now, lag_ms)

    def _may_join(
        self,
        broker_id: BrokerId,
        live: Mapping[BrokerId, BrokerEpoch],
        joins_at: int,
        *,
        synced: bool,
    ) -> bool:
        """Return True if a follower has enough, and the incarnation that fetched is the one that
        is registered (KIP-903).
        """
        follower = self.progress[broker_id]
        return (
            follower.counted_end(synced=synced) >= joins_at
            and live.get(broker_id) == follower.broker_epoch
        )

    def answered(
        self, proposal: IsrProposal, error_code: ErrorCode, state: PartitionImage | None
    ) -> None:
        """Take over the controller's answer to a proposal. ``state``: the partition as it is now,
        if the answer has it and it is of this leader epoch.

        Only a newer state settles a proposal, or a refusal after which it cannot have been agreed.
        After a time-out, or where the state had moved on, it may have been agreed; the next leader
        may then be a replica that joined by it.
        """
        if state is not None:
            self.isr.take(state.isr, state.partition_epoch)
        if proposal == self.isr.pending and error_code in _NEVER_AGREED:
            self.isr.refuse()
        self._find_unfetched()

    def _find_unfetched(self) -> None:
        self.unfetched = self._members_unfetched()

    def _members_unfetched(self) -> tuple[BrokerId, ...]:
        progress = self.progress
        return tuple(
            member
            for member in self.isr.maximal
            if member in progress and progress[member].log_end < 0
        )

    def check(self, *, leads: bool) -> None:
        """Assert the invariants."""
        assert leads or not self.progress, "only a leader has followers"
        assert leads or self.isr.pending is None, "only a leader proposes"
        assert set(self.isr.agreed) <= set(self.isr.maximal), self.isr.agreed
        assert self.unfetched == self._members_unfetched(), self.unfetched
