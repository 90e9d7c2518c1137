"""Ledger of a partition that holds a coordinator's state."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sim.cluster.ledger import Ledger, Stored


class StateLedger(Ledger):
    """Ledger of records without values of clients.

    Compaction removes superseded records on each replica at its own time: from then on the replicas
    need not be equal.
    """

    may_be_compacted: Callable[[], bool] = staticmethod(lambda: False)

    def commits(self, broker: int, high_watermark: int, batches: Any) -> None:
        """Record batches without values."""
        super().commits(broker, high_watermark, [_bare(one) for one in batches])

    def agrees(self, broker: int, batches: Sequence[Stored], *, log_start: int = 0) -> None:
        """Compare, unless compaction may have removed records."""
        if not self.may_be_compacted():
            super().agrees(broker, [_bare(one) for one in batches], log_start=log_start)

    def ends(self, logs: Mapping[int, Any], *, log_start: int = 0) -> None:
        """Accept all that compaction has left."""
        if not self.may_be_compacted():
            bare = {key: [_bare(one) for one in log] for key, log in logs.items()}
            super().ends(bare, log_start=log_start)


class PrunedLedger(StateLedger):
    """Ledger of a state whose owner deletes the beginning of its log."""

    def ends(self, logs: Mapping[int, Any], *, log_start: int = 0) -> None:
        """Compare what every replica still has: a follower deletes later than its leader."""
        starts = [log[0].first for log in logs.values() if log]
        start = max(starts, default=log_start)
        rest = {key: [one for one in log if one.first >= start] for key, log in logs.items()}
        super().ends(rest, log_start=start)


def _bare(stored: Stored) -> Stored:
    return stored._replace(values=())
