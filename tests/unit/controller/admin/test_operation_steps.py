"""Steps of long operations: their progress is read from images, by any controller."""

from dataclasses import replace

import pytest
from controller.admin.operation_steps import (
    MOVING_MAX,
    WAIT_MS_MAX,
    Kind,
    Operation,
    State,
    Step,
    drain_moves,
    next_step,
    restored,
)
from tidemark.model.ids import BrokerId, LeaderEpoch, PartitionEpoch, TopicId
from tidemark.model.metadata import ClusterImage, PartitionImage, TopicImage
from tidemark.model.topics import TopicPartition
from tidemark.plans.reassignment import Move
from unit.controller.worlds import a_broker

ONE, TWO, THREE = BrokerId(1), BrokerId(2), BrokerId(3)
FIRST = TopicPartition("orders", 0)
MOVE = Move(FIRST, (1, 2), (1, 3))
HERE = PartitionImage(0, (ONE, TWO), (ONE, TWO), ONE, LeaderEpoch(0), PartitionEpoch(0))
ON_ITS_WAY = replace(HERE, replicas=(ONE, THREE, TWO), adding=(THREE,), removing=(TWO,))
ELSEWHERE = replace(HERE, replicas=(ONE, TWO, THREE), adding=(THREE,))
THERE = replace(HERE, replicas=(ONE, THREE), isr=(ONE, THREE))


def image(*partitions: PartitionImage, fenced: int = 0) -> ClusterImage:
    numbered = tuple(replace(one, partition=at) for at, one in enumerate(partitions))
    topic = TopicImage("orders", TopicId(bytes(16)), {}, numbered)
    brokers = {BrokerId(one): a_broker(one, fenced=one == fenced) for one in range(1, 4)}
    return ClusterImage(cluster_id="here", topics={topic.name: topic}, brokers=brokers)


def operation(state: State = "running", action: Kind = "reassign", broker_id: int = 1) -> Operation:
    return Operation(
        operation_id="5f", action=action, subject="orders-0", state=state, progress=0.25,
        messages=[], moves_count=1, broker_id=broker_id, principal="User:a", created_ms=1,
        updated_ms=1,
    )  # fmt: skip


def step(*partitions: PartitionImage, state: State = "running", move: Move = MOVE) -> Step:
    return next_step(image(*partitions), operation(state), [move], frozenset(), now_ms=1)


def test_a_partition_that_is_not_on_its_way_is_submitted() -> None:
    assert step(HERE)[:5] == ([MOVE], [], [], 0.0, False)


@pytest.mark.parametrize("part", [ON_ITS_WAY, ELSEWHERE])
def test_a_partition_that_is_moving_is_waited_for_whoever_moves_it(part: PartitionImage) -> None:
    assert step(part)[:5] == ([], [], [], 0.0, False)


def test_a_partition_with_its_replicas_is_finished() -> None:
    assert step(THERE)[3:6] == (1.0, True, "1 of 1 partitions are done")


def test_a_partition_or_topic_that_was_deleted_holds_nothing_up() -> None:
    assert next_step(ClusterImage(), operation(), [MOVE], frozenset(), now_ms=1).done
    assert step().done


def test_a_refused_move_is_not_submitted_again() -> None:
    found = next_step(image(HERE), operation(), [MOVE], frozenset({FIRST}), now_ms=1)
    assert (found.submit, found.done) == ([], True)
    assert found.text == "1 of 1 partitions are done, 1 of them were refused"


def test_a_bounded_number_of_partitions_moves_at_a_time() -> None:
    moves = [MOVE._replace(partition=TopicPartition("orders", at)) for at in range(MOVING_MAX + 9)]
    fresh = next_step(image(*[HERE] * len(moves)), operation(), moves, frozenset(), now_ms=1)
    assert fresh.submit == moves[:MOVING_MAX]
    parts = [ON_ITS_WAY] * (MOVING_MAX - 1) + [HERE] * 10
    full = next_step(image(*parts), operation(), moves, frozenset(), now_ms=1)
    assert full.submit == [moves[-10]]


def test_progress_is_the_share_of_finished_partitions() -> None:
    moves = [MOVE._replace(partition=TopicPartition("orders", at)) for at in range(4)]
    now = image(THERE, ON_ITS_WAY, HERE, HERE)
    found = next_step(now, operation(), moves, frozenset(), now_ms=1)
    assert (found.progress, found.submit, found.done) == (0.25, moves[2:], False)


@pytest.mark.parametrize(
    ("part", "cancel"), [(HERE, []), (ON_ITS_WAY, [FIRST]), (ELSEWHERE, []), (THERE, [])]
)
def test_only_moves_of_its_own_are_cancelled(
    part: PartitionImage, cancel: list[TopicPartition]
) -> None:
    found = step(part, state="cancelling")
    assert (found.submit, found.cancel, found.done) == ([], cancel, not cancel)
    assert found.progress == 0.25


LED_BY_TWO = replace(HERE, leader=TWO)
ORDER = Move(FIRST, (2, 1), (1, 2))


@pytest.mark.parametrize(
    ("part", "action", "fenced", "elects", "waits"),
    [
        (LED_BY_TWO, "drain", 0, True, False),
        (LED_BY_TWO, "decommission", 0, True, False),
        (LED_BY_TWO, "reassign", 0, False, False),
        (LED_BY_TWO, "drain", 1, False, True),
        (replace(LED_BY_TWO, isr=(TWO,)), "drain", 0, False, True),
        (HERE, "drain", 0, False, False),
    ],
)
def test_a_preferred_leader_is_elected_once_it_could_lead(
    part: PartitionImage, action: Kind, fenced: int, *, elects: bool, waits: bool
) -> None:
    of = operation(action=action, broker_id=2)
    found = next_step(image(part, fenced=fenced), of, [ORDER], frozenset(), now_ms=1)
    assert found.elect == ([FIRST] if elects else [])
    assert (found.done, bool(found.waiting)) == (not elects and not waits, waits)


AWAITED = replace(LED_BY_TWO, isr=(TWO,))
"""A partition that broker 1 is to lead again once it is in sync."""


@pytest.mark.parametrize(
    ("part", "fenced", "waiting"),
    [(AWAITED, 0, 1), (LED_BY_TWO, 1, 1), (LED_BY_TWO, 0, 0), (HERE, 0, 0)],
)
def test_the_end_of_a_drain_waits_for_its_broker(
    part: PartitionImage, fenced: int, waiting: int
) -> None:
    now = image(part, fenced=fenced)
    found = next_step(now, operation(action="undrain"), [ORDER], frozenset(), now_ms=1)
    assert found.waiting == waiting
    assert found.done is (part is HERE)


def test_a_drain_waits_while_its_broker_leads_for_want_of_another_in_sync() -> None:
    alone = replace(HERE, replicas=(TWO, ONE), isr=(ONE,))
    move = Move(FIRST, (1, 2), (2, 1))
    found = next_step(image(alone), operation(action="drain"), [move], frozenset(), now_ms=1)
    assert (found.waiting, found.done, found.progress) == (1, False, 0)


@pytest.mark.parametrize("passed_ms", [WAIT_MS_MAX - 1, WAIT_MS_MAX])
def test_a_wait_without_progress_ends_and_says_what_is_left(passed_ms: int) -> None:
    begun = operation(action="undrain")
    now_ms = begun.updated_ms + passed_ms
    found = next_step(image(AWAITED), begun, [ORDER], frozenset(), now_ms=now_ms)
    assert found.done is (passed_ms == WAIT_MS_MAX)
    assert ("1 are left" in found.text) is found.done


def test_elections_wait_until_every_replica_is_in_place() -> None:
    moves = [ORDER, MOVE._replace(partition=TopicPartition("orders", 1))]
    now = image(LED_BY_TWO, ON_ITS_WAY)
    assert next_step(now, operation(action="drain"), moves, frozenset(), now_ms=1).elect == []


def test_a_drained_broker_comes_last_behind_those_in_sync() -> None:
    part = replace(HERE, replicas=(ONE, TWO, THREE), isr=(ONE, THREE))
    assert drain_moves(image(part), 1) == ([Move(FIRST, (1, 2, 3), (3, 2, 1))], 0)


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (replace(HERE, replicas=(TWO, ONE), leader=TWO), ([], 0)),
        (replace(HERE, replicas=(TWO, ONE)), ([Move(FIRST, (2, 1), (2, 1))], 0)),
        (replace(HERE, replicas=(ONE,), isr=(ONE,)), ([], 1)),
    ],
)
def test_a_drain_moves_what_the_broker_leads_or_would_lead(
    part: PartitionImage, expected: tuple[list[Move], int]
) -> None:
    assert drain_moves(image(part), 1) == expected


def test_a_drain_is_undone_where_the_replicas_are_the_same() -> None:
    drained = [Move(FIRST, (1, 2), (2, 1))]
    now = image(replace(HERE, replicas=(TWO, ONE), leader=TWO))
    assert restored(now, drained) == [Move(FIRST, (2, 1), (1, 2))]
    led_by_another = image(replace(HERE, leader=TWO))
    assert restored(led_by_another, drained) == [Move(FIRST, (1, 2), (1, 2))]
    assert restored(image(HERE), drained) == []
    assert restored(image(THERE), drained) == []
    assert restored(image(ON_ITS_WAY), drained) == []
    assert restored(ClusterImage(), drained) == []
