"""Replicas whose disk failed or lost bytes: which are to be reported to the controller, when, and
from when on one of them may be made sound again.

    damage found, or directory failed      it fetches no longer
    reported, until by the image           it is in no ISR and no ELR, in a later leader epoch:
                                           none of its fetches counts any more
    repaired (a damaged one)               it fetches again; a failed one stays offline
"""

from collections.abc import Collection, Iterable
from typing import Final, NamedTuple

from tidemark.model.backoff import Backoff
from tidemark.model.ids import NO_BROKER, BrokerId, InstantMs, TopicId
from tidemark.model.metadata import PartitionImage

BACKOFF: Final = Backoff(50, 1_000)
"""After a report without an answer."""
AGAIN: Final = Backoff(1_000, 30_000)
"""Until a replica that stays unsound is reported again."""
LOOK_MS: Final = 50
REPORT_REPLICAS_MAX: Final = 1_000
FIRST_EPOCH: Final = 0
FOUND_AT_START: Final = -1
"""No leader epoch: it has fetched nothing since it registered."""

Key = tuple[TopicId, int]


class Unsound(NamedTuple):
    """One replica here, as it is to be reported."""

    topic_id: TopicId
    partition: int
    leader_epoch: int
    is_offline: bool
    """Its directory failed; else it is damaged, and leads on while nobody else could."""
    reason: str

    @property
    def key(self) -> Key:
        """Which replica."""
        return self.topic_id, self.partition


def is_counted(state: PartitionImage, broker: BrokerId) -> bool:
    """Whether a replica may be taken to have all that is committed."""
    return broker in state.isr or broker in state.elr


def is_new_here(state: PartitionImage, broker: BrokerId) -> bool:
    """Whether a replica without a log was never made, rather than lost: leader and ISR are those of
    the partition's creation, or the replica is on its way in.
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
    """Whether an unsound replica must still be reported to the controller. ``unsound_since``: the
    last leader epoch in which it fetched. The only replica stays whatever is reported of it, and a
    damaged one while no other member of ISR or ELR lives.
    """
    if broker not in state.replicas or state.replicas == (broker,):
        return False
    if not is_counted(state, broker):
        return state.leader_epoch <= unsound_since
    others = {*state.isr, *state.elr} - {broker}
    return is_offline or not others.isdisjoint(live)


def may_repair(state: PartitionImage, broker: BrokerId, *, unsound_since: int) -> bool:
    """Whether a damaged replica may drop what it has: another leads, and no fetch of it counts."""
    return (
        state.leader not in (NO_BROKER, broker)
        and not is_counted(state, broker)
        and state.leader_epoch > unsound_since
    )


class UnsoundReports:
    """Invariant: one request is in flight; a replica that stays unsound is reported again, at first
    after a second, then more and more seldom.
    """

    __slots__ = ("_again", "_failures", "_in_flight", "_next_at")

    def __init__(self) -> None:
        self._in_flight: tuple[Unsound, ...] = ()
        self._failures = 0
        self._next_at = InstantMs(-1)
        self._again: dict[Key, tuple[InstantMs, int]] = {}
        """When a replica may be reported next, and how often it was."""

    def next_request(self, unsound: Iterable[Unsound], now: InstantMs) -> tuple[Unsound, ...]:
        """What to report now, of all that must be; nothing while a request is in flight, or too
        early after a failure.
        """
        wanted = {one.key: one for one in unsound}
        self._again = {
            key: known
            for key, known in self._again.items()
            if key in wanted or now < known[0] + AGAIN.max_ms
        }
        if self._in_flight or now < self._next_at:
            return ()
        ripe = [one for key, one in wanted.items() if self._ripe_at(key) <= now]
        self._in_flight = tuple(ripe[:REPORT_REPLICAS_MAX])
        return self._in_flight

    def _ripe_at(self, key: Key) -> int:
        known = self._again.get(key)
        return -1 if known is None else known[0]

    def answered(self, now: InstantMs, dice: float) -> None:
        """The controller has judged each of them. ``dice`` in [0, 1) spreads the next reports."""
        for one in self._in_flight:
            reports = self._again.get(one.key, (0, 0))[1] + 1
            delay_ms = round(AGAIN.delay_ms(reports, dice))
            self._again[one.key] = (InstantMs(now + delay_ms), reports)
        self._in_flight = ()
        self._failures = 0

    def failed(self, now: InstantMs, dice: float) -> None:
        """No answer: ask again, after a delay that grows; ``dice`` in [0, 1) spreads it."""
        self._in_flight = ()
        self._failures += 1
        self._next_at = InstantMs(now + round(BACKOFF.delay_ms(self._failures, dice)))

    def next_try(self, now: InstantMs) -> InstantMs:
        """When to look again at the latest."""
        return InstantMs(max(self._next_at, now + LOOK_MS))
