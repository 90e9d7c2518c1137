"""Transactions are drawn so that each could be torn: over both topics, most of them to commit."""

import random

from chaos.drafts import draw_draft, value_of
from chaos.history import Partition
from chaos.values import Name, read_value
from hypothesis import given
from hypothesis import strategies as st

PARTITIONS = [Partition(topic, number) for topic in ("a", "b") for number in range(3)]


@given(st.integers())
def test_a_transaction_writes_to_both_topics(seed: int) -> None:
    draft = draw_draft(random.Random(seed), PARTITIONS)
    assert {partition.topic for partition in draft.placed} == {"a", "b"}
    assert len(draft.placed) >= 3


def test_most_commit_and_some_abort() -> None:
    dice = random.Random(1)
    commits = sum(draw_draft(dice, PARTITIONS).commits for _ in range(1_000))
    assert 700 < commits < 900


def test_only_who_asks_to_commit_is_impatient() -> None:
    dice = random.Random(1)
    drafts = [draw_draft(dice, PARTITIONS) for _ in range(1_000)]
    impatient = [draft for draft in drafts if draft.patience_s is not None]
    assert 20 < len(impatient) < 80
    assert all(draft.commits for draft in impatient)


def test_every_partition_has_its_turn() -> None:
    dice = random.Random(1)
    drafts = [draw_draft(dice, PARTITIONS) for _ in range(100)]
    assert {partition for draft in drafts for partition in draft.placed} == set(PARTITIONS)


def test_a_value_names_its_transaction() -> None:
    assert read_value(value_of("chaos-v2-1", 12, 3)) == Name("chaos-v2-1", "12", 3)
