"""A controller that dies between two ZooKeeper transactions of one change: with the same inputs the
next one ends in the same state.
"""

from collections.abc import Collection
from dataclasses import fields
from functools import cache
from typing import get_args

import pytest
from controller.core.cluster import StoreOp, check_partition
from controller.core.inputs import (
    Deposed,
    Elected,
    Faulted,
    FeedLost,
    Input,
    StoreFailed,
    StoreWritten,
)
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.model.ids import BrokerId
from tidemark.model.metadata import ClusterDelta, TopicImage
from tidemark.runtime import zk_paths
from unit.controller.changes_cut import (
    SCRIPTS,
    a_store,
    broker,
    dies,
    disk_of,
    loses_its_disk,
    loses_power,
    reports,
    some_topics,
    stops,
)
from unit.controller.lives import (
    Life,
    Script,
    cut_life,
    cut_lives,
    lived,
    next_life,
    without_epochs,
)
from unit.controller.worlds import a_topic

WRITES_NOTHING = {Elected, Deposed, StoreWritten, StoreFailed, Faulted, FeedLost}
"""Inputs about the machine's own term, writes and errors. A stream that broke is followed by the
loss of the znode.
"""
NEVER_CHANGED = {"finalized_features", "partitions_changed"}
"""No decision of this release has these: the last one is made of ``topics_changed`` when a delta is
sent.
"""
REBALANCE_MS = 2_000
EACH_ALONE = {"ops_max": 2, "rebalance_ms": REBALANCE_MS}
"""Every operation is a transaction of its own, so that a change can be cut anywhere."""


MANY = (loses_its_disk, loses_power, dies, stops, reports)
"""Scripts that change most partitions of a cluster."""
SPREAD = ((1, 2, 3), (2, 3, 1), (3, 1, 2))

PREPARED = a_store(some_topics())


@cache
def wide(partitions: int) -> Life:
    """Return a store as ``PREPARED``, with so many partitions in topic ``a``."""
    topic = a_topic("a", *(SPREAD[number % 3] for number in range(partitions)))
    return a_store((topic, *some_topics()[1:]))


def check_completed(life: Life, whole: Life, cuts: int) -> None:
    """Assert that a cut life has come to the same state as the whole one."""
    assert without_epochs(life.image) == without_epochs(whole.image), f"cut after {cuts}"
    epochs = leader_epochs(life)
    assert all(epochs[at] >= epoch for at, epoch in leader_epochs(whole).items()), cuts
    check_whole(life)


def check_whole(life: Life) -> None:
    """Assert that nothing is left of an unfinished change."""
    tree, image = life.tree, life.image
    assert set(tree.children(zk_paths.PARTITIONS)) == {one.hex() for one in image.topics_by_id}
    for topic in image.topics.values():
        numbers = tree.children(zk_paths.partitions_of(topic.topic_id))
        assert sorted(map(int, numbers)) == list(range(len(topic.partitions)))
        for partition in topic.partitions:
            check_partition(partition)
    assert next_life(life).begin.stored.topics, "what is stored can be loaded"


def no_lost_disk_counts(life: Life, older: Collection[tuple[str, int]]) -> bool:
    """True if no broker with an empty disk is in the ISR or the ELR of an older partition. A
    partition that is created after the loss may have it in its ISR.
    """
    empty = [n for n, one in life.image.brokers.items() if one.log_dir_ids != disk_of(n)]
    return not any(
        set(empty) & {*one.isr, *one.elr}
        for topic in life.image.topics.values()
        for one in topic.partitions
        if (topic.name, one.partition) in older
    )


def leader_epochs(life: Life) -> dict[tuple[str, int], int]:
    """Leader epoch of every partition."""
    return {
        (topic.name, one.partition): one.leader_epoch
        for topic in life.image.topics.values()
        for one in topic.partitions
    }


@pytest.mark.feature("H02", "Y09")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_a_change_cut_anywhere_is_completed(script: Script) -> None:
    whole, cuts = lived(next_life(PREPARED, **EACH_ALONE), script), 0
    for cuts, life in cut_lives(PREPARED, script, **EACH_ALONE):
        check_completed(life, whole, cuts)
    assert cuts > 0


@pytest.mark.feature("H02", "Y09")
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda script: script.__name__)
def test_a_change_of_many_partitions_cut_between_any_two_transactions_is_completed(
    script: Script,
) -> None:
    """In transactions as large as a controller's."""
    before = wide(1_200)
    whole = lived(next_life(before, rebalance_ms=REBALANCE_MS), script)
    for left in range(1, whole.session.written):
        life = cut_life(before, script, left, rebalance_ms=REBALANCE_MS)
        check_completed(life, whole, left)


@pytest.mark.parametrize("script", MANY, ids=lambda script: script.__name__)
def test_a_change_of_ten_thousand_partitions_cut_in_the_middle_is_completed(
    script: Script,
) -> None:
    before = wide(10_000)
    whole = lived(next_life(before), script)
    assert whole.session.written > 10
    left = whole.session.written // 2
    check_completed(cut_life(before, script, left), whole, left)


@given(st.sampled_from(SCRIPTS), st.sampled_from(SCRIPTS), st.integers(2, 6), st.data())
@settings(max_examples=80, deadline=None)
def test_changes_that_follow_one_another_are_completed_too(
    first: Script, second: Script, ops_max: int, data: st.DataObject
) -> None:
    def both(life: Life) -> None:
        first(life)
        life.settle()
        second(life)

    whole = lived(next_life(PREPARED, ops_max=ops_max), both)
    left = data.draw(st.integers(1, max(whole.session.written, 1)))
    life = cut_life(PREPARED, both, left, ops_max=ops_max)
    check_whole(life)
    older = leader_epochs(lived(next_life(PREPARED, ops_max=ops_max), first))
    assert no_lost_disk_counts(life, older)


def test_the_scripts_have_every_input_every_delta_and_every_znode() -> None:
    lives = [lived(next_life(PREPARED, **EACH_ALONE), script) for script in SCRIPTS]
    assert {one for life in lives for one in life.seen} | WRITES_NOTHING == set(get_args(Input))
    assert {one for life in lives for one in life.ops} == set(get_args(StoreOp))
    deltas = [delta for life in lives for delta in life.deltas]
    names = {one.name for one in fields(ClusterDelta)}
    changed = {name for name in names if any(getattr(delta, name) for delta in deltas)}
    assert changed == names - NEVER_CHANGED


def large(partitions: int) -> Life:
    """Return a store with one topic, whose partitions are in sync at brokers 1, 2 and 3."""
    return a_store((a_topic("large", *(SPREAD[n % 3] for n in range(partitions))),))


def named_by(topic: TopicImage, number: int) -> list[int]:
    """Return the partitions with a broker in ISR or ELR."""
    return [one.partition for one in topic.partitions if number in (*one.isr, *one.elr)]


@pytest.mark.feature("Y09")
@pytest.mark.parametrize(("partitions", "step"), [(1_200, 1), (10_000, 7)])
def test_an_empty_disk_is_in_no_isr_wherever_its_registration_was_cut(
    partitions: int, step: int
) -> None:
    before = large(partitions)
    transactions = lived(next_life(before), loses_its_disk).session.written
    for left in range(transactions - 1, 0, -step):
        life = cut_life(before, loses_its_disk, left)
        assert named_by(life.image.topics["large"], 1) == [], f"cut after {left}"
        assert life.image.brokers[BrokerId(1)] == broker(1, start=2, disk=1)


def test_a_broker_is_registered_once_all_that_it_lost_is_written() -> None:
    life = next_life(large(1_200))
    seen: list[tuple[bool, int]] = []

    def look() -> None:
        found = next_life(life).begin.stored
        known = next(one for one in found.brokers if one.broker_id == 1)
        seen.append((known == broker(1, start=2, disk=1), len(named_by(found.topics[0], 1))))

    life.session.on_commit = look
    lived(life, loses_its_disk)
    assert all(not registered or not named for registered, named in seen)
    assert {registered for registered, _ in seen} == {False, True}
    assert any(0 < named < 1_200 for _, named in seen), "it took several transactions"
