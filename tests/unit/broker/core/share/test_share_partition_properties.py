"""A share-partition against its plain twin, over random reads, acknowledgements, failed and late
writes, expired locks, lost sessions and changes of leader; and the promises of share groups.
"""

from collections import Counter
from collections.abc import Iterable
from random import Random

import pytest
from broker.core.share.state_writes import state_batches
from hypothesis import given, strategies
from tidemark.model.ids import Offset
from tidemark.model.share_state import PERSISTED_STATES, DeliveryState, StateBatch
from unit.broker.core.share.share_history import ShareHistory

SEEDS = 40
STEPS = 250
REACHED = (
    "acquired",
    "acknowledged",
    "refused",
    "isolated",
    "locks expired",
    "locks expired in a write",
    "rolled back",
    "given back late",
    "late write",
    "dead letters",
    "gap after a change of leader",
    "committed",
    "aborted",
    "pending after a change of leader",
)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_histories_agree_with_the_plain_twin(seed: int) -> None:
    ShareHistory(seed).run(STEPS)


@pytest.mark.parametrize("seed", range(SEEDS))
def test_histories_with_an_order_by_key_agree_with_the_plain_twin(seed: int) -> None:
    ShareHistory(seed, is_key_ordered=True).run(STEPS)


def test_histories_come_across_everything() -> None:
    seen: Counter[str] = Counter()
    for seed in range(SEEDS // 4):
        seen += ShareHistory(seed).run(STEPS).seen
    assert not [name for name in REACHED if not seen[name]]


states = strategies.sampled_from(sorted(PERSISTED_STATES))
part = strategies.tuples(strategies.integers(1, 4), states, strategies.integers(1, 3))


def by_offset(batches: Iterable[StateBatch], start: int) -> dict[int, tuple[DeliveryState, int]]:
    return {
        offset: (state, count)
        for first, last, state, count in batches
        for offset in range(first, last + 1)
        if offset >= start
    }


@given(strategies.lists(part), strategies.integers(0, 20), strategies.randoms())
def test_batches_of_a_write_say_the_same_of_each_offset(
    parts: list[tuple[int, DeliveryState, int]], start: int, dice: Random
) -> None:
    batches, offset = [], 0
    for records, state, count in parts:
        batches.append(StateBatch(Offset(offset), Offset(offset + records - 1), state, count))
        offset += records + dice.randint(0, 1)
    expected = by_offset(batches, start)
    dice.shuffle(batches)
    joined = state_batches(batches, Offset(start))
    assert by_offset(joined, start) == expected
    ends = {(one.last_offset + 1, *one[2:]) for one in joined}
    assert not ends & {(one.first_offset, *one[2:]) for one in joined}, "neighbours are joined"
