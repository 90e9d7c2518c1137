"""Bounds and delays of the controller."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Bounds and delays of the controller. The configuration sets most of them."""

    requests_waiting_max: int = 4_096  # further requests get REQUEST_TIMED_OUT at once
    lease_ms: int = 3_000
    feed_lost_fence_ms: int = 500
    no_subscriber_resign_ms: int = 20_000  # since the term began; 0: never
    rebalance_interval_ms: int = 300_000  # 0: preferred leaders are not restored automatically
    elections_at_once: int = 499  # partitions of one change: one transaction
    shard_moves_max: int = 5  # moves for balance at a time, of each kind of coordinator
    shard_move_interval_ms: int = 1_000

    def __post_init__(self) -> None:
        assert self.requests_waiting_max > 0, "requests_waiting_max"
        assert self.lease_ms > 0, "lease_ms"
        assert self.elections_at_once > 0, "elections_at_once"
