"""What a replica tells of its own log to a tool that watches it catch up."""

from broker.shell.offset_lookup import at_mark, at_replica_mark
from tidemark.kafka.list_offsets import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, MAX_TIMESTAMP
from tidemark.model.errors import ErrorCode
from unit.broker.shell.replicated_worlds import LeaderWorld, partition, replicated


def test_a_replica_tells_its_end_before_it_is_committed() -> None:
    world = LeaderWorld()
    world.append()
    found = at_replica_mark(world.hosted(), LATEST_TIMESTAMP)
    committed = at_mark(world.hosted(), LATEST_TIMESTAMP)
    assert found is not None
    assert committed is not None
    assert (found.offset, committed.offset) == (1, 0)


def test_a_follower_tells_too() -> None:
    world = LeaderWorld(partition(epoch=3))
    world.append()
    world.change(topics_changed=(replicated(partition(leader=2, epoch=4, version=1)),))
    hosted = world.hosted()
    refused = at_mark(hosted, LATEST_TIMESTAMP)
    assert refused is not None
    assert refused.error_code is ErrorCode.NOT_LEADER_OR_FOLLOWER
    bounds = [at_replica_mark(hosted, mark) for mark in (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)]
    assert [one.offset for one in bounds if one is not None] == [0, 1]


def test_other_marks_are_the_leaders_to_tell_and_a_failed_log_tells_nothing() -> None:
    world = LeaderWorld()
    assert at_replica_mark(world.hosted(), MAX_TIMESTAMP) is None
    world.hosted().partition.become_failed()
    assert at_replica_mark(world.hosted(), LATEST_TIMESTAMP) is None
