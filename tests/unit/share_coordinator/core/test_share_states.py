"""Reads and writes of share-partitions by their leaders, and both fences."""

import pytest
from share_coordinator.core.settings import ShareSettings
from share_coordinator.core.share_states import BATCHES_MAX, ShareStates
from tidemark.codec.share_records import ShareSnapshotRecord, ShareUpdateRecord
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import LeaderEpoch, Offset
from tidemark.model.share_state import (
    UNKNOWN_START,
    DeleteState,
    DeliveryState,
    InitializeState,
    LogEpochs,
    ReadStateSummary,
    SharePartitionKey,
    StateBatch,
    StateEpoch,
    StateSummary,
)
from unit.broker.core.groups.consumer.worlds import topic_id
from unit.share_coordinator.worlds import START_WALL, G, World, a_write, batch, pending

AVAILABLE, ACKNOWLEDGED = DeliveryState.AVAILABLE, DeliveryState.ACKNOWLEDGED
OTHER = SharePartitionKey(G, topic_id(9), 0)


def a_world(settings: ShareSettings | None = None) -> tuple[World, SharePartitionKey]:
    """One share-partition that starts at 10, read by a leader of epoch 5."""
    world = World(settings, t=1)
    world.join("a", "t")
    key = world.key("t", 0)
    world.read(key, leader_epoch=5)
    world.write(key, start=10, leader_epoch=5)
    return world, key


def test_a_leader_reads_what_was_written() -> None:
    world, key = a_world()
    world.write(key, batch(12, 13, ACKNOWLEDGED), leader_epoch=5)
    world.write(key, batch(10, 11, AVAILABLE, 2), leader_epoch=5)
    found = world.read(key, leader_epoch=6)
    assert (found.start_offset, found.state_epoch) == (10, world.epoch_of(key))
    assert found.batches == (batch(10, 11, AVAILABLE, 2), batch(12, 13, ACKNOWLEDGED))


def test_an_earlier_leader_neither_reads_nor_writes() -> None:
    world, key = a_world()
    world.read(key, leader_epoch=6)
    log = list(world.log)
    assert world.read(key, leader_epoch=5).error_code is ErrorCode.FENCED_LEADER_EPOCH
    refused = world.write(key, batch(10, 19, ACKNOWLEDGED), leader_epoch=5)
    assert refused.error_code is ErrorCode.FENCED_LEADER_EPOCH
    assert world.log == log


def test_a_read_fences_earlier_leaders_for_later_owners_too() -> None:
    world, key = a_world()
    world.read(key, leader_epoch=6)
    world.reload()
    assert world.write(key, leader_epoch=5).error_code is ErrorCode.FENCED_LEADER_EPOCH
    assert world.write(key, leader_epoch=6).error_code is ErrorCode.NONE


def test_a_read_again_by_the_same_leader_writes_nothing() -> None:
    world, key = a_world()
    before = len(world.log)
    assert world.read(key, leader_epoch=5).error_code is ErrorCode.NONE
    assert len(world.log) == before


def summed_up(world: World, key: SharePartitionKey) -> tuple[int, int, int]:
    (found,) = world.ask_states(ReadStateSummary(key, LeaderEpoch(0)))
    assert isinstance(found, StateSummary)
    return found.leader_epoch, found.start_offset, found.delivery_complete_count


def a_log(*starts: tuple[int, int], end: int) -> LogEpochs:
    return LogEpochs(tuple((LeaderEpoch(epoch), Offset(at)) for epoch, at in starts), Offset(end))


SHORTER = a_log((2, 0), (5, 7), (6, 13), (7, 15), end=15)
"""Of a leader of epoch 7 that was elected uncleanly: epoch 5 has lost all from offset 13 on."""


def test_a_start_that_the_log_has_lost_goes_back() -> None:
    """Records that are written at its offsets are others, which no member has had."""
    world, key = a_world()
    world.write(key, start=20, leader_epoch=5, complete=4)
    found = world.read(key, leader_epoch=7, log=SHORTER)
    assert (found.start_offset, found.batches) == (13, ())
    world.reload()
    again = world.read(key, leader_epoch=8, log=a_log((7, 15), (8, 30), end=40))
    assert again.start_offset == 13, "it is durable, and found once"
    assert summed_up(world, key)[1:] == (13, 0)
    assert world.write(key, start=14, leader_epoch=8).error_code is ErrorCode.NONE


def test_states_of_records_that_the_log_has_lost_are_forgotten() -> None:
    world, key = a_world()
    kept = batch(11, 14, ACKNOWLEDGED), batch(16, 17, AVAILABLE, 3)
    world.write(key, *kept, leader_epoch=5, complete=4, pending=(pending(18, 19),))
    found = world.read(key, leader_epoch=7, log=SHORTER)
    assert (found.start_offset, found.batches) == (10, (batch(11, 12, ACKNOWLEDGED),))
    assert found.pending == ()
    assert summed_up(world, key)[1:] == (10, 2)
    world.end_transaction(1, commits=True)
    world.reload()
    assert world.read(key, leader_epoch=7).batches == (batch(11, 12, ACKNOWLEDGED),)


def test_a_log_that_has_all_records_takes_nothing() -> None:
    world, key = a_world()
    world.write(key, batch(11, 14, ACKNOWLEDGED), leader_epoch=5)
    found = world.read(key, leader_epoch=7, log=a_log((5, 7), (7, 15), end=15))
    assert found.batches == (batch(11, 14, ACKNOWLEDGED),)
    world.write(key, batch(15, 19, ACKNOWLEDGED), leader_epoch=7)
    found = world.read(key, leader_epoch=9, log=a_log((5, 7), (7, 15), (9, 20), end=20))
    assert found.batches == (batch(11, 19, ACKNOWLEDGED),)


def test_a_leader_without_its_log_takes_nothing_and_hides_nothing() -> None:
    """A broker of an earlier release. What it writes may be in another log than the state's."""
    world, key = a_world()
    world.write(key, start=20, leader_epoch=5)
    assert world.read(key, leader_epoch=6).start_offset == 20
    found = world.read(key, leader_epoch=7, log=a_log((5, 7), (7, 22), end=22))
    assert found.start_offset == 20
    found = world.read(key, leader_epoch=8, log=a_log((5, 7), (8, 19), end=19))
    assert found.start_offset == 19


def test_a_start_that_was_reset_beyond_the_log_stays_there() -> None:
    """No record was lost: an operator wants what comes to be left out."""
    world, key = a_world()
    begins = InitializeState(key, StateEpoch(world.epoch_of(key) + 1), Offset(100))
    (record,) = world.shard._states.initialize(begins, START_WALL).records
    world.shard.replay(record, None)
    for epoch in (6, 7, 8):
        log = a_log((5, 0), (epoch, 10 * epoch), end=10 * epoch)
        assert world.read(key, leader_epoch=epoch, log=log).start_offset == 100
    world.write(key, batch(101, 101, ACKNOWLEDGED), start=100, leader_epoch=8)
    found = world.read(key, leader_epoch=9, log=a_log((5, 0), (9, 90), end=90))
    assert (found.start_offset, found.batches) == (90, ()), "it was reached, and the end lost"


@pytest.mark.parametrize("difference", [-1, 1])
def test_a_write_of_another_life_of_the_state_is_fenced(difference: int) -> None:
    world, key = a_world()
    write = a_write(key, world.epoch_of(key) + difference, batch(10, 10, ACKNOWLEDGED))
    (answer,) = world.ask_states(write)
    assert answer.error_code is ErrorCode.FENCED_STATE_EPOCH


def test_a_write_without_a_state_is_of_a_state_that_was_deleted() -> None:
    world, _ = a_world()
    world.topics.put("u", 1)
    refused = world.write(world.key("u", 0), start=0)
    assert refused.error_code is ErrorCode.FENCED_STATE_EPOCH


def test_a_read_without_a_state() -> None:
    world, _ = a_world()
    world.topics.put("u", 1)
    assert world.read(world.key("u", 0)).error_code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "one",
    [
        batch(9, 8, ACKNOWLEDGED),
        batch(-1, 3, ACKNOWLEDGED),
        batch(10, 11, DeliveryState.ACQUIRED),
        batch(10, 11, ACKNOWLEDGED, -1),
        batch(10, 11, ACKNOWLEDGED, 2**15),
    ],
)
def test_a_write_that_cannot_be_changes_nothing(one: StateBatch) -> None:
    world, key = a_world()
    log = list(world.log)
    assert world.write(key, one, leader_epoch=5).error_code is ErrorCode.INVALID_REQUEST
    assert world.log == log


def test_a_state_has_so_many_batches_at_most() -> None:
    world, key = a_world()
    many = [batch(2 * at + 10, 2 * at + 10, ACKNOWLEDGED) for at in range(BATCHES_MAX + 1)]
    refused = world.write(key, *many, leader_epoch=5)
    assert refused.error_code is ErrorCode.INVALID_REQUEST
    assert world.write(key, *many[:-1], leader_epoch=5).error_code is ErrorCode.NONE


def test_the_first_write_brings_a_start() -> None:
    world = World(t=1)
    world.join("a", "t")
    key = world.key("t", 0)
    assert world.write(key).error_code is ErrorCode.INVALID_REQUEST
    assert world.write(key, start=-2).error_code is ErrorCode.INVALID_REQUEST
    assert world.write(key, start=0, complete=-2).error_code is ErrorCode.INVALID_REQUEST
    assert world.write(key, start=0).error_code is ErrorCode.NONE


def test_after_so_many_updates_there_is_a_snapshot() -> None:
    settings = ShareSettings(share_coordinator_snapshot_update_records_per_snapshot=3)
    world, key = a_world(settings)
    for offset in range(10, 18):
        world.write(key, batch(offset, offset, ACKNOWLEDGED), leader_epoch=5)
    kinds = [type(record) for record in world.records()[-8:]]
    pattern = [ShareUpdateRecord] * 3 + [ShareSnapshotRecord]
    assert kinds in [(pattern * 3)[shift : shift + 8] for shift in range(4)]
    assert world.read(key, leader_epoch=5).batches == (batch(10, 17, ACKNOWLEDGED),)


def test_a_summary_fences_nobody() -> None:
    world, key = a_world()
    world.write(key, leader_epoch=5, complete=4)
    summary = ReadStateSummary(key, LeaderEpoch(9))
    (found,) = world.ask_states(summary)
    assert isinstance(found, StateSummary)
    assert (found.start_offset, found.leader_epoch) == (10, 5)
    assert found.delivery_complete_count == 4
    assert world.write(key, leader_epoch=5).error_code is ErrorCode.NONE


def test_a_summary_of_what_is_not_there() -> None:
    world, _ = a_world()
    world.topics.put("u", 1)
    (found,) = world.ask_states(ReadStateSummary(world.key("u", 0), LeaderEpoch(0)))
    assert isinstance(found, StateSummary)
    assert (found.error_code, found.start_offset) == (ErrorCode.NONE, UNKNOWN_START)


def test_a_state_begins_again_only_at_a_higher_epoch() -> None:
    world, key = a_world()
    states, epoch = world.shard._states, world.epoch_of(key)
    for state_epoch, code in ((epoch - 1, ErrorCode.FENCED_STATE_EPOCH), (epoch, ErrorCode.NONE)):
        request = InitializeState(key, StateEpoch(state_epoch), Offset(3))
        outcome = states.initialize(request, START_WALL)
        assert (outcome.records, outcome.reply.error_code) == ((), code)
    outcome = states.initialize(InitializeState(key, StateEpoch(epoch + 1), Offset(3)), START_WALL)
    (record,) = outcome.records
    states.replay(record)
    assert world.read(key, leader_epoch=4).error_code is ErrorCode.FENCED_LEADER_EPOCH
    assert world.read(key, leader_epoch=5).start_offset == 3


def test_a_start_that_cannot_be() -> None:
    request = InitializeState(OTHER, StateEpoch(1), Offset(-2))
    refused = ShareStates(1).initialize(request, 0)
    assert (refused.records, refused.reply.error_code) == ((), ErrorCode.INVALID_REQUEST)


def test_a_state_that_is_not_there_is_deleted_already() -> None:
    outcome = ShareStates(1).delete(DeleteState(OTHER))
    assert (outcome.records, outcome.reply.error_code) == ((), ErrorCode.NONE)


def test_a_fresh_epoch_is_above_those_of_deleted_states() -> None:
    states = ShareStates(1)
    (begun,) = states.initialize(InitializeState(OTHER, StateEpoch(50), Offset(0)), 0).records
    states.replay(begun)
    assert states.fresh_epoch([OTHER], 0) == 51
    states.replay(ShareSnapshotRecord(OTHER, None))
    assert states.fresh_epoch([OTHER], 0) == 51
    assert states.count == 0
