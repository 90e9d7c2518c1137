"""Share-partitions begin once, at the right offset, and end with their topic."""

from share_coordinator.core.initialization import Start, begin, delete, missing
from share_coordinator.core.subscribed_topics import SubscribedTopic
from tidemark.codec.share_records import ShareSnapshotRecord
from tidemark.model.ids import Offset
from tidemark.model.share_state import UNKNOWN_START
from unit.share_coordinator.worlds import START_WALL, World


def a_world() -> World:
    world = World(t=2)
    world.join("a", "t")
    return world


def test_new_topics_start_where_their_leader_says_added_partitions_at_0() -> None:
    world = a_world()
    t, new = world.key("t", 0).topic_id, b"n" * 16
    subscribed = {t: SubscribedTopic("t", 3), new: SubscribedTopic("n", 1)}
    starts = missing(world.logged(), subscribed)  # type: ignore[arg-type]
    assert starts == [Start(t, "t", 2, Offset(0)), Start(new, "n", 0, UNKNOWN_START)]  # type: ignore[arg-type]


def test_states_come_before_the_list_of_them() -> None:
    world = a_world()
    start = Start(world.key("t", 0).topic_id, "t", 5, Offset(0))
    first, last = begin(world.logged(), world.shard._states, [start], START_WALL)
    assert isinstance(first, ShareSnapshotRecord)
    assert first.key.partition == 5
    assert not isinstance(last, ShareSnapshotRecord)


def test_nothing_to_begin_writes_nothing() -> None:
    world = a_world()
    assert begin(world.logged(), world.shard._states, [], START_WALL) == []
    assert delete(world.logged(), world.shard._states, []) == []


def test_a_log_that_was_cut_between_states_and_list_is_mended() -> None:
    world = a_world()
    world.log.pop(next(at for at, (key, _) in enumerate(world.log) if key.startswith(b"\0\x0f")))
    world.reload()
    before = world.epoch_of(world.key("t", 0))
    world.beat("a", 1)
    assert set(world.logged().topics) == {world.key("t", 0).topic_id}
    assert world.epoch_of(world.key("t", 0)) > before
