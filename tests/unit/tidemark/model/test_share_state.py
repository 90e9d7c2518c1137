"""Durable state of share-partitions: numbers and words of Kafka's protocol."""

import pytest
from tidemark.model.ids import TopicId
from tidemark.model.share_state import (
    PERSISTED_STATES,
    TERMINAL_STATES,
    DeliveryState,
    SharePartitionKey,
)


@pytest.mark.parametrize(
    ("number", "name"),
    [(0, "AVAILABLE"), (1, "ACQUIRED"), (2, "ACKNOWLEDGED"), (3, "ARCHIVING"), (4, "ARCHIVED")],
)
def test_states_have_kafkas_numbers(number: int, name: str) -> None:
    assert DeliveryState(number).name == name


def test_a_lock_is_never_persisted() -> None:
    assert DeliveryState.ACQUIRED not in PERSISTED_STATES


def test_terminal_states_are_persisted() -> None:
    assert TERMINAL_STATES < PERSISTED_STATES


def test_a_key_is_shown_with_group_topic_and_partition() -> None:
    key = SharePartitionKey("billing", TopicId(bytes(15) + b"\x07"), 3)
    assert str(key) == "billing:AAAAAAAAAAAAAAAAAAAABw-3"
