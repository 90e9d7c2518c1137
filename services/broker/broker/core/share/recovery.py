"""A window from the state that the share-coordinator kept."""

from collections.abc import Sequence

from tidemark.model.ids import Offset
from tidemark.model.share_state import PERSISTED_STATES, StateBatch

from broker.core.share.key_order import KeyOrder
from broker.core.share.states import AVAILABLE
from broker.core.share.window import Range, Window


def recovered_window(
    start: Offset,
    batches: Sequence[StateBatch],
    isolated_from: int,
    order: KeyOrder | None = None,
) -> Window | str:
    """The window, or what is wrong with its state. What a former leader left out between batches
    was acquired there or has no record: it is available, and looked at again.

    kept       [--A--]      [--B--]
    window     |  A  | c. 0 |  B  |
    """
    window = Window(start, isolated_from, order)
    offset = start
    before = -1
    for batch in batches:
        problem = _problem(batch, before)
        if problem is not None:
            return problem
        before = batch.last_offset
        if batch.last_offset < start:
            continue
        first = max(batch.first_offset, start)
        if first > offset:
            window.append(Range(offset, Offset(first - 1), AVAILABLE, 0))
        window.append(Range(first, batch.last_offset, batch.delivery_state, batch.delivery_count))
        offset = Offset(batch.last_offset + 1)
    window.advance()
    return window


def _problem(batch: StateBatch, before: int) -> str | None:
    first, last, state, delivery_count = batch
    if not before < first <= last:
        return f"state batch {first}-{last} overlaps another one, or is empty"
    if state not in PERSISTED_STATES:
        return f"state batch {first}-{last} is {state.name}, which is never persisted"
    if delivery_count < 0:
        return f"state batch {first}-{last} has delivery count {delivery_count}"
    return None
