"""Replicas whose disk failed or lost bytes: those to report to the controller, the time of the
report, and the condition for a repair.

    damage found, or directory failed      it fetches no longer
    reported, until by the image           it is in no ISR and no ELR, in a later leader epoch:
                                           none of its fetches counts from then on
    repaired (a damaged one)               it fetches again; a failed one stays offline
"""

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from tidemark.model.backoff import Backoff
from tidemark.model.ids import NO_BROKER, BrokerId, InstantMs, TopicId
from tidemark.model.metadata import PartitionImage

BACKOFF: Final = Backoff(50, 1_000)
"""Delay after a report without a reply."""
AGAIN: Final = Backoff(1_000, 30_000)
"""Delay until a replica that stays unsound is reported again."""
LOOK_MS: Final = 50
REPORT_REPLICAS_MAX: Final = 1_000
FIRST_EPOCH: Final = 0
FOUND_AT_START: Final = -1
"""Not a leader epoch: the replica has fetched nothing since the broker registered."""

Key = tuple[TopicId, int]


class Unsound(NamedTuple):
    """Report of one replica of this broker."""

    topic_id: TopicId
    partition: int
    leader_epoch: int
    is_offline: bool
    """True if its directory failed; otherwise it is damaged, and leads if no other replica can."""
    reason: str

    @property
    def key(self) -> Key:
        """Topic id and partition number."""
        return self.topic_id, self.partition


def is_counted(state: PartitionImage, broker: BrokerId) -> bool:
    """True if a replica may be taken to have all committed records."""
    return broker in state.isr or broker in state.elr


def is_new_here(state: PartitionImage, broker: BrokerId) -> bool:
    """True if a replica without a log was never created, rather than lost: leader and ISR are those
    of the partition's creation, or the replica is being added.
    """
    if broker in state.adding:
        return not is_counted(state, broker)
    return state.leader_epoch == FIRST_EPOCH and state.partition_epoch == FIRST_EPOCH


def must_report(
    state: PartitionImage,
    broker: BrokerId,
    *,
    unsound_since: int,
    is_offline: bool,
    live: Collection[BrokerId],
) -> bool:
    """True if an unsound replica must still be reported to the controller.

    ``unsound_since``: the last leader epoch in which it fetched. An only replica is never reported.
    A damaged one is not reported while no other member of ISR or ELR is alive.
    """
    if broker not in state.replicas or state.replicas == (broker,):
        return False
    if not is_counted(state, broker):
        return state.leader_epoch <= unsound_since
    others = {*state.isr, *state.elr} - {broker}
    return is_offline or not others.isdisjoint(live)


def may_repair(state: PartitionImage, broker: BrokerId, *, unsound_since: int) -> bool:
    """True if a damaged replica may drop its log: another leads, and none of its fetches counts."""
    return (
        state.leader not in (NO_BROKER, broker)
        and not is_counted(state, broker)
        and state.leader_epoch > unsound_since
    )


class UnsoundReports:
    """Reports of one broker.

    Invariant: one request is in flight. A replica that stays unsound is reported again, first
    after a second, then at growing intervals.
    """

    __slots__ = ("_again", "_failures", "_in_flight", "_next_at")

    def __init__(self) -> None:
        self._in_flight: tuple[Unsound, ...] = ()
        self._failures = 0
        self._next_at = InstantMs(-1)
        self._again: dict[Key, tuple[InstantMs, int]] = {}
        """Time of the next report of a replica, and the number of its reports."""

    def next_request(self, unsound: Iterable[Unsound], now: InstantMs) -> tuple[Unsound, ...]:
        """Return the replicas to report now; none while a request is in flight or backed off."""
        current = {replica.key: replica for replica in unsound}
        self._again = {
            key: reported
            for key, reported in self._again.items()
            if key in current or now < reported[0] + AGAIN.max_ms
        }
        if self._in_flight or now < self._next_at:
            return ()
        due = [replica for key, replica in current.items() if self._due_at(key) <= now]
        self._in_flight = tuple(due[:REPORT_REPLICAS_MAX])
        return self._in_flight

    def _due_at(self, key: Key) -> int:
        reported = self._again.get(key)
        return -1 if reported is None else reported[0]

    def answered(self, now: InstantMs, dice: float) -> None:
        """Finish the request in flight; the controller decided on each replica. ``dice`` in [0, 1)
        spreads the next reports.
        """
        for replica in self._in_flight:
            reports = self._again.get(replica.key, (0, 0))[1] + 1
            delay_ms = round(AGAIN.delay_ms(reports, dice))
            self._again[replica.key] = (InstantMs(now + delay_ms), reports)
        self._in_flight = ()
        self._failures = 0

    def failed(self, now: InstantMs, dice: float) -> None:
        """Send the request again, after a delay that grows; ``dice`` in [0, 1) spreads it."""
        self._in_flight = ()
        self._failures += 1
        self._next_at = InstantMs(now + round(BACKOFF.delay_ms(self._failures, dice)))

    def next_try(self, now: InstantMs) -> InstantMs:
        """Return the latest time for the next ``next_request``."""
        return InstantMs(max(self._next_at, now + LOOK_MS))
