"""A window from the state that the share-coordinator kept."""

from collections.abc import Sequence
from operator import attrgetter

from tidemark.model.ids import Offset
from tidemark.model.share_state import PERSISTED_STATES, PendingBatch, StateBatch

from broker.core.share.key_order import KeyOrder
from broker.core.share.states import ACQUIRED, ARCHIVING, AVAILABLE
from broker.core.share.transactions import TransactionLocks
from broker.core.share.window import Range, Window


def recovered_window(
    start: Offset,
    batches: Sequence[StateBatch | PendingBatch],
    isolated_from: int,
    *,
    order: KeyOrder | None = None,
    transactions: TransactionLocks | None = None,
) -> Window | str:
    """The window, or what is wrong with its state. What a former leader left out between batches
    was acquired there or has no record: it is available, and looked at again.

    kept       [--A--]      [--B--]
    window     |  A  | c. 0 |  B  |
    """
    window = Window(start, isolated_from, order)
    offset = start
    before = -1
    transactions = TransactionLocks() if transactions is None else transactions
    for batch in sorted(batches, key=attrgetter("first_offset")):
        problem = _problem(batch, before)
        if problem is not None:
            return problem
        before = batch.last_offset
        if batch.last_offset < start:
            continue
        first = max(batch.first_offset, start)
        if first > offset:
            window.append(Range(offset, Offset(first - 1), AVAILABLE, 0))
        window.append(_recovered(batch, first, transactions))
        if order is not None and isinstance(batch, PendingBatch) and batch.before is ACQUIRED:
            order.must_read(first, batch.last_offset)
        offset = Offset(batch.last_offset + 1)
    window.advance()
    return window


def _recovered(
    batch: StateBatch | PendingBatch, first: Offset, transactions: TransactionLocks
) -> Range:
    last, delivery_count = batch.last_offset, batch.delivery_count
    if isinstance(batch, StateBatch):
        return Range(first, last, batch.delivery_state, delivery_count)
    if batch.before is ARCHIVING:
        return Range(first, last, ARCHIVING, delivery_count)
    lock = transactions.lock(batch.transaction, batch.outcome)
    lock.hold(first, last)
    return Range(first, last, ACQUIRED, delivery_count, lock)


def _problem(batch: StateBatch | PendingBatch, before: int) -> str | None:
    first, last, state, delivery_count = batch[:4]
    if not before < first <= last:
        return f"state batch {first}-{last} overlaps another one, or is empty"
    if state not in PERSISTED_STATES:
        return f"state batch {first}-{last} is {state.name}, which is never persisted"
    if delivery_count < 0:
        return f"state batch {first}-{last} has delivery count {delivery_count}"
    return None
