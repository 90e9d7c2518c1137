import pytest
from tidemark.client.admin.group_types import TransactionDescription
from tidemark.client.admin.types import ProducerState
from tidemark.model.topics import TopicPartition
from tidemark.plans.hanging_transactions import OpenTransaction, hanging, suspects

ZERO, ONE = TopicPartition("t", 0), TopicPartition("t", 1)
NOW_MS, TIMEOUT_MS = 1_000_000, 900_000


def producer(producer_id: int, wrote_ms: int, start: int = 5) -> ProducerState:
    return ProducerState(producer_id, 0, 1, wrote_ms, 0, start)


def known(state: str, *partitions: TopicPartition) -> TransactionDescription:
    return TransactionDescription("x", state, 7, 0, 60_000, NOW_MS - 500, partitions)


def test_only_what_is_open_for_longer_than_any_timeout_is_suspect() -> None:
    old, young = producer(7, 10), producer(8, NOW_MS - 10)
    found = suspects({ZERO: [old, young]}, now_ms=NOW_MS, timeout_ms_max=TIMEOUT_MS)
    assert found == [OpenTransaction(ZERO, old)]


@pytest.mark.parametrize(
    ("description", "hangs"),
    [
        (None, True),
        (known("Ongoing", ZERO), False),
        (known("PrepareCommit", ZERO), False),
        (known("Ongoing", ONE), True),
        (known("CompleteCommit", ZERO), True),
        (known("Empty"), True),
    ],
)
def test_what_a_coordinator_will_end_does_not_hang(
    description: TransactionDescription | None, hangs: bool
) -> None:
    suspect = OpenTransaction(ZERO, producer(7, 10))
    coordinators = {} if description is None else {7: description}
    assert bool(hanging([suspect], coordinators)) is hangs
