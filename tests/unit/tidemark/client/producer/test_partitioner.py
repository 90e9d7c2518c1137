import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2
from tidemark.client.producer.partitioner import StickyChoice, partition_for_key


@pytest.mark.feature("C02", "C03")
@given(st.binary(max_size=64), st.integers(1, 200))
def test_a_key_goes_where_other_kafka_clients_send_it(key: bytes, count: int) -> None:
    assert partition_for_key(key, count) == (murmur2(key) & 0x7FFFFFFF) % count


@pytest.mark.feature("C02")
def test_records_without_key_stay_together_until_a_batch_is_full() -> None:
    sticky = StickyChoice(100, random.Random(7).random)
    chosen = [sticky.choose(50, (0, 1, 2)) for _ in range(8)]
    pairs = [chosen[at : at + 2] for at in range(0, 8, 2)]
    assert all(first == second for first, second in pairs)
    assert all(before[0] != after[0] for before, after in pairwise(pairs))


@pytest.mark.feature("C02")
def test_every_partition_gets_its_share() -> None:
    sticky = StickyChoice(1, random.Random(7).random)
    chosen = [sticky.choose(1, tuple(range(5))) for _ in range(5_000)]
    assert min(chosen.count(number) for number in range(5)) > 800


def test_only_candidates_are_chosen_and_one_alone_is_kept() -> None:
    sticky = StickyChoice(1, random.Random(7).random)
    assert {sticky.choose(1, (3,)) for _ in range(5)} == {3}
    sticky.forget()
    assert sticky.choose(1, (4,)) == 4
