"""AddPartitionsToTxn: by clients, and by partition leaders that verify or add."""

import pytest
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from txn_coordinator.core import transaction
from txn_coordinator.core.effects import Answer
from txn_coordinator.core.requests import (
    AddOffsets,
    AddOffsetsReply,
    AddPartitions,
    AddPartitionsReply,
)
from txn_coordinator.core.settings import TxnSettings
from unit.txn_coordinator.worlds import ID, P0, P1, World, a_record, written


@pytest.fixture
def world() -> World:
    return World()


def codes(answers: list[Answer]) -> list[tuple[int, ErrorCode]]:
    """Request id and error of each answer to an addition."""
    found = []
    for one in answers:
        assert isinstance(one.reply, AddPartitionsReply)
        found.append((one.to, one.reply.error_code))
    return found


def addition(
    session: tuple[int, int], *partitions: TopicPartition, v2: bool = False
) -> AddPartitions:
    return AddPartitions(ID, *session, partitions, transactions_v2=v2)


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
@pytest.mark.parametrize("v2", [False, True])
def test_an_addition_to_the_next_transaction_waits_for_the_last_marker(
    world: World, v2: bool
) -> None:
    session = world.session()
    world.add(session, P0, v2=v2)
    reply = world.end(session, v2=v2)
    session = (reply.producer_id, reply.producer_epoch) if v2 else session
    assert world.answers_to(addition(session, P1, v2=v2), 8) == []
    assert world.answers_to(addition(session, P0, v2=v2), 9) == []
    assert world.state() == "PrepareCommit"
    (markers,) = world.markers
    answers = world.answers_to(written(markers))
    assert codes(answers) == [(8, ErrorCode.NONE), (9, ErrorCode.NONE)]
    view = world.view()
    assert (view.state, view.partitions) == ("Ongoing", (P0, P1))


def test_an_addition_of_offsets_waits_too(world: World) -> None:
    session = world.session()
    world.add(session, P0)
    world.end(session)
    assert world.answers_to(AddOffsets(ID, *session, "group"), 8) == []
    (answer,) = world.answers_to(written(world.markers[0]))
    assert answer == Answer(8, AddOffsetsReply(ErrorCode.NONE))
    assert world.state() == "Ongoing"


@pytest.mark.feature("L13")
def test_an_addition_waits_so_long_and_no_longer(world: World) -> None:
    session = world.session()
    world.add(session, P0)
    world.end(session)
    wait_ms = world.settings.addition_wait_ms
    assert world.answers_to(addition(session, P1), 8) == []
    assert world.woken(wait_ms - 1) == []
    assert codes(world.woken(1)) == [(8, ErrorCode.CONCURRENT_TRANSACTIONS)]
    assert world.answers_to(written(world.markers[0])) == []
    assert world.state() == "CompleteCommit"


def test_an_addition_that_waits_is_judged_by_what_holds_then() -> None:
    world = World(TxnSettings(record_bytes_max=2_000))
    session = world.session()
    world.add(session, P0)
    world.end(session)
    many = [TopicPartition("t", number) for number in range(600)]
    assert world.answers_to(addition(session, *many), 8) == []
    assert codes(world.answers_to(written(world.markers[0]))) == [(8, ErrorCode.POLICY_VIOLATION)]
    assert world.state() == "CompleteCommit"


@pytest.mark.feature("L16")
def test_the_first_addition_with_a_new_producer_id_waits_too(world: World) -> None:
    """Epochs are used up: the end of the last transaction has given another producer id."""
    world.log = [a_record(producer_epoch=transaction.CLIENT_EPOCH_MAX)]
    world.crash()
    last = (7, transaction.CLIENT_EPOCH_MAX)
    world.add(last, P0, v2=True)
    reply = world.end(last, v2=True)
    following = (reply.producer_id, reply.producer_epoch)
    assert following[0] != last[0]
    assert world.answers_to(addition(following, P1, v2=True), 8) == []
    assert codes(world.answers_to(written(world.markers[0]))) == [(8, ErrorCode.NONE)]
    assert world.view().partitions == (P1,)


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
