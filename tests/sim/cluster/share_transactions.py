"""Outcomes of transactions with acknowledgements of share groups."""

from dataclasses import dataclass, field

from tidemark.model.share_state import TransactionKey

from sim.checkers import require


@dataclass
class Transactions:
    """Decisions, as the log of transactions has them.

    In transactions v2 a decision has the epoch of its markers. It ends the transaction of the epoch
    before, and there is no open one below that.
    """

    decided: dict[int, list[tuple[int, bool]]] = field(default_factory=dict)
    """By producer id: epochs of markers, in order, and whether the transaction is committed."""

    def decides(self, producer_id: int, marker_epoch: int, *, commits: bool) -> None:
        """Record a decision."""
        made = (marker_epoch, commits)
        known = self.decided.setdefault(producer_id, [])
        if made not in known:
            known.append(made)

    def fate(self, transaction: TransactionKey) -> bool | None:
        """Return True for a committed transaction, False for an aborted one; None: it is open."""
        for marker_epoch, commits in self.decided.get(transaction.producer_id, ()):
            if marker_epoch > transaction.producer_epoch:
                return commits
        return None

    def ends(self, transaction: TransactionKey, *, commits: bool) -> None:
        """Check the end of a transaction in the state of share groups."""
        require(
            self.fate(transaction) == commits,
            "acknowledgements end as their transaction",
            f"{transaction}: {self.fate(transaction)}, ended with {commits}",
        )
