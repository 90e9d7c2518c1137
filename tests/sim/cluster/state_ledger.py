"""The ledger of a partition that holds a coordinator's state."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from sim.cluster.ledger import Ledger, Stored


class StateLedger(Ledger):
    """Its records are nobody's values, and compaction takes away what later ones replace, on each
    replica when its cleaner comes to it: from then on replicas need not be the same.
    """

    may_be_compacted: Callable[[], bool] = staticmethod(lambda: False)

    def commits(self, broker: int, high_watermark: int, batches: Any) -> None:
        """Without values."""
        super().commits(broker, high_watermark, [_bare(one) for one in batches])

    def agrees(self, broker: int, batches: Sequence[Stored], *, log_start: int = 0) -> None:
        """Unless compaction may have taken something away."""
        if not self.may_be_compacted():
            super().agrees(broker, [_bare(one) for one in batches], log_start=log_start)

    def ends(self, logs: Mapping[int, Any]) -> None:
        """Whatever compaction has left."""
        if not self.may_be_compacted():
            super().ends({key: [_bare(one) for one in log] for key, log in logs.items()})


def _bare(stored: Stored) -> Stored:
    return stored._replace(values=())
