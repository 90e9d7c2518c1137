"""AddPartitionsToTxn: by clients, and by partition leaders that verify or add."""

import pytest
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from txn_coordinator.core.settings import TxnSettings
from unit.txn_coordinator.worlds import P0, P1, World


@pytest.fixture
def world() -> World:
    return World()


@pytest.mark.feature("L07", "L08")
def test_added_partitions_are_in_the_log_before_the_reply(world: World) -> None:
    world.add(world.session(), P0, P1)
    world.crash()
    view = world.view()
    assert view.partitions == (P0, P1)
    assert view.state == "Ongoing"


def test_every_partition_is_answered(world: World) -> None:
    reply = world.add(world.session(), P1, P0)
    assert [result.partition for result in reply.results] == [P1, P0]
    assert {result.error_code for result in reply.results} == {ErrorCode.NONE}


def test_added_partitions_are_not_written_again(world: World) -> None:
    session = world.session()
    world.add(session, P0, P1)
    written = len(world.log)
    assert world.add(session, P1).error_code == ErrorCode.NONE
    assert len(world.log) == written


@pytest.mark.feature("L13")
def test_nothing_is_added_while_markers_are_outstanding(world: World) -> None:
    session = world.session()
    world.add(session, P0)
    world.end(session)
    assert world.add(session, P1).error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    world.all_written()
    assert world.add(session, P1).error_code == ErrorCode.NONE


def test_an_unknown_producer_is_refused(world: World) -> None:
    pid, epoch = world.session()
    unknown = ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert world.add((pid + 1, epoch), P0).error_code == unknown
    assert world.add((pid, epoch), P0, transactional_id="other").error_code == unknown


@pytest.mark.feature("L02")
@pytest.mark.parametrize("step", [-1, 1])
def test_another_epoch_is_fenced(world: World, step: int) -> None:
    world.session()
    pid, epoch = world.session()
    assert world.add((pid, epoch + step), P0).error_code == ErrorCode.PRODUCER_FENCED


@pytest.mark.feature("L16")
def test_a_leader_verifies_which_partitions_are_in_the_transaction(world: World) -> None:
    session = world.session()
    world.add(session, P0)
    reply = world.add(session, P0, P1, verify=True)
    assert [result.error_code for result in reply.results] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_TXN_STATE,
    ]
    assert world.view().partitions == (P0,)


def test_a_newer_producer_gets_an_abortable_error(world: World) -> None:
    reply = world.add(world.session(), P0, verify=True, v2=True)
    assert reply.results[0].error_code == ErrorCode.TRANSACTION_ABORTABLE


def test_nothing_is_in_a_transaction_that_has_ended(world: World) -> None:
    session = world.session()
    world.add(session, P0)
    world.end(session)
    busy = world.add(session, P0, verify=True)
    assert busy.error_code == ErrorCode.CONCURRENT_TRANSACTIONS
    world.all_written()
    reply = world.add(session, P0, verify=True)
    assert reply.results[0].error_code == ErrorCode.INVALID_TXN_STATE


@pytest.mark.feature("L16")
def test_v2_a_late_add_of_the_transaction_before_is_fenced(world: World) -> None:
    session = world.session()
    world.add(session, P0, v2=True)
    world.end(session, v2=True)
    assert world.add(session, P1, v2=True).error_code == ErrorCode.PRODUCER_FENCED
    world.all_written()
    assert world.add(session, P1, v2=True).error_code == ErrorCode.PRODUCER_FENCED


def test_a_transaction_must_fit_into_a_record() -> None:
    world = World(TxnSettings(record_bytes_max=2_000))
    session = world.session()
    many = [TopicPartition("t" * 200, number) for number in range(400)]
    assert world.add(session, *many[:300]).error_code == ErrorCode.NONE
    refused = world.add(
        session,
        *many,
        TopicPartition("u" * 249, 0),
        *(TopicPartition("v" * 249, number) for number in range(200)),
    )
    assert refused.error_code == ErrorCode.POLICY_VIOLATION
    assert len(world.view().partitions) == 300
