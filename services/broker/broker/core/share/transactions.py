"""Acknowledgements that belong to open transactions.

Such a record stays acquired, without a timer and without a member, until its transaction ends: a
commit gives it the state that its member asked for, an abort gives it back. Leaders change in
between: pending acknowledgements are part of the persisted state.
"""

from tidemark.model.share_state import DeliveryState, TransactionKey

from broker.core.share.window import NEVER, Lock


class TransactionLocks:
    """Invariant: every lock of a transaction that holds records is found by its transaction."""

    def __init__(self) -> None:
        self._locks: dict[TransactionKey, dict[DeliveryState, Lock]] = {}
        self._ended: dict[TransactionKey, bool] = {}

    def __len__(self) -> int:
        return len(self._locks)

    def lock(self, transaction: TransactionKey, outcome: DeliveryState) -> Lock:
        """The lock of records that get this state by a commit."""
        locks = self._locks.setdefault(transaction, {})
        if outcome not in locks:
            locks[outcome] = Lock("", NEVER, (transaction, outcome))
        return locks[outcome]

    def end(self, transaction: TransactionKey) -> list[Lock]:
        """Remove and return the locks of a transaction."""
        return list(self._locks.pop(transaction, {}).values())

    def remember(self, transaction: TransactionKey, *, is_committed: bool) -> None:
        """A transaction has ended before the answer to the write of its acknowledgements."""
        self._ended[transaction] = is_committed

    def take_ended(self) -> dict[TransactionKey, bool]:
        """Remove and return what was remembered."""
        ended, self._ended = self._ended, {}
        return ended
