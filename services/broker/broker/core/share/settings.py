"""Settings of one share-partition: the broker's defaults, or its group's own."""

from dataclasses import dataclass, fields
from typing import Final

from tidemark.model.share_group_configs import RecordOrder, ShareGroupConfig

from broker.core.share.states import Cause

_DOUBLINGS_MAX: Final = 32
_UNSEEN_TIMES: Final = 10
"""Unseen give-backs of a record for each delivery that it may have. A slow member that acquires in
advance gives back the same records often, and a record must not be archived because of that.
"""


@dataclass(frozen=True, slots=True)
class ShareSettings:
    """Limits and durations. A change applies to what happens after it."""

    deliveries_max: int = 5
    """``share.delivery.count.limit``: a record given back at it is archived."""
    lock_ms: int = 30_000
    """``share.record.lock.duration.ms``."""
    unseen_max: int = _UNSEEN_TIMES * 5
    """Times that a record may be given back as never received, at one leader, without a delivery
    being counted: otherwise one member could keep it from being archived for ever.
    """
    records_max: int = 2_000
    """``share.partition.max.record.locks``: bounds the window from its start to its end."""
    is_renew_enabled: bool = True
    """``share.renew.acknowledge.enable``."""
    release_backoff_ms: int = 0
    """``share.release.backoff.ms``: delay of a released record after its first delivery; doubles
    with each further one. 0: none.
    """
    release_backoff_max_ms: int = 60_000
    """``share.release.backoff.max.ms``: also bounds delays that members request."""
    has_dead_letters: bool = False
    """True: rejected and exhausted records are copied to a queue before they are archived."""
    is_key_ordered: bool = False
    """``share.record.order=key``. Holds from the loading of a share-partition on: a change takes
    effect once it is loaded again.
    """
    write_retry_ms: int = 1_000
    """Delay of the next write after a failed one, unless a member waits for it."""

    def __post_init__(self) -> None:
        for limit in fields(self):
            assert getattr(self, limit.name) >= 0, limit.name
        assert self.deliveries_max > 0, "a record is delivered once at least"
        assert self.lock_ms > 0, "a lock holds for a time"
        assert self.records_max > 0, "a window holds a record"

    @classmethod
    def of(cls, config: ShareGroupConfig) -> "ShareSettings":
        """Return the settings of a group's configuration."""
        return cls(
            deliveries_max=config.delivery_count_limit,
            unseen_max=_UNSEEN_TIMES * config.delivery_count_limit,
            lock_ms=config.record_lock_duration_ms,
            records_max=config.partition_max_record_locks,
            is_renew_enabled=config.renew_acknowledge_enable,
            release_backoff_ms=config.release_backoff_ms,
            release_backoff_max_ms=config.release_backoff_max_ms,
            has_dead_letters=bool(config.dead_letter_topic),
            is_key_ordered=config.record_order is RecordOrder.KEY,
        )

    @property
    def isolated_from(self) -> int:
        """Deliveries from which on a batch is delivered in parts, in answers of its own: a record
        that no member can process must not use up the attempts of its neighbours.
        """
        return max(2, (self.deliveries_max + 1) // 2)

    @property
    def exhausted(self) -> Cause:
        """Way of a record that is given back at the limit of deliveries."""
        return Cause.DEAD_LETTERED if self.has_dead_letters else Cause.EXHAUSTED

    @property
    def rejected(self) -> Cause:
        """Way of a record that its member rejects."""
        return Cause.DEAD_LETTERED if self.has_dead_letters else Cause.REJECTED

    def delay_ms(self, asked_ms: int, delivery_count: int) -> int:
        """Delay of a released record: as its member requests, else by its deliveries."""
        if asked_ms:
            return min(asked_ms, self.release_backoff_max_ms)
        doublings = min(max(0, delivery_count - 1), _DOUBLINGS_MAX)
        return min(self.release_backoff_ms << doublings, self.release_backoff_max_ms)
