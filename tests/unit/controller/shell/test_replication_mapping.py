from controller.core.effects import (
    AlteredPartition,
    AlteredPartitions,
    PartitionResult,
    PartitionResults,
    Reply,
    ReportedReplica,
    ReportedReplicas,
    ShutdownProgress,
)
from controller.core.inputs import (
    HeldLogs,
    IsrChange,
    IsrMember,
    Move,
    PartitionRef,
    UnsoundReplica,
)
from controller.shell import replication_mapping as mapping
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerEpoch, BrokerId
from tidemark_wire.v1 import controller_pb2 as pb
from unit.controller.worlds import a_topic, topic_id

Alter, Elect, Reassign = (
    pb.AlterPartitionsRequest,
    pb.ElectLeadersRequest,
    pb.AlterReassignmentsRequest,
)


def test_a_proposal_keeps_its_epochs_and_members() -> None:
    member = Alter.IsrMember(broker_id=1, broker_epoch=101)
    wire = Alter.Partition(
        topic_id=topic_id("a"), partition=2, leader_epoch=3, partition_epoch=4, new_isr=[member]
    )
    (change,) = mapping.read_isr_changes(Alter(partitions=[wire]))
    isr = (IsrMember(BrokerId(1), BrokerEpoch(101)),)
    assert change == IsrChange(topic_id("a"), 2, 3, 4, isr)


def test_an_election_of_all_is_not_one_of_none() -> None:
    one = Elect.Partition(topic="a", partition=1)
    assert mapping.read_election(Elect(all_partitions=True)) is None
    assert mapping.read_election(Elect(partitions=[one])) == (PartitionRef("a", 1),)
    assert mapping.read_election(Elect()) == ()


def test_calling_a_move_off_names_no_replicas() -> None:
    there = Reassign.Partition(topic="a", partition=0, replicas=[1, 2])
    off = Reassign.Partition(topic="a", partition=1, cancel=True)
    moves = mapping.read_moves(Reassign(partitions=[there, off]))
    assert moves == (Move("a", 0, (BrokerId(1), BrokerId(2))), Move("a", 1, None))


def test_an_agreed_isr_comes_with_its_state() -> None:
    state = a_topic("a", (1, 2)).partitions[0]
    rows = (
        AlteredPartition(topic_id("a"), 0, ErrorCode.NONE, state),
        AlteredPartition(topic_id("b"), 1, ErrorCode.UNKNOWN_TOPIC_ID, None),
    )
    wire = mapping.write_altered_partitions(Reply(1, result=AlteredPartitions(rows)), "")
    assert list(wire.partitions[0].state.isr) == [1, 2]
    assert not wire.partitions[1].HasField("state")
    assert wire.partitions[1].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_rows_of_partitions_are_written_whole() -> None:
    rows = PartitionResults((PartitionResult("a", 1, ErrorCode.ELECTION_NOT_NEEDED, "why"),))
    for write in (mapping.write_elected_leaders, mapping.write_altered_reassignments):
        (row,) = write(Reply(1, result=rows), "").partitions
        assert (row.topic, row.partition, row.error_message) == ("a", 1, "why")


def test_a_refused_shutdown_counts_nothing() -> None:
    done = mapping.write_shutdown_progress(Reply(1, result=ShutdownProgress(0)), "")
    refused = mapping.write_shutdown_progress(Reply(1, ErrorCode.NOT_CONTROLLER), "host:1")
    assert (done.partitions_led, refused.partitions_led) == (0, -1)
    assert refused.controller_hint == "host:1"


def test_logs_of_a_broker_are_read_by_topic_and_kind() -> None:
    topic = pb.HeldLogs.Topic(
        topic_id=topic_id("a"), sound=[0, 2], damaged=[1], lost=[3], log_dir_id=b"d" * 16
    )
    missing = pb.HeldLogs.Missing(topic="b", partitions=[4])
    a, (two, one) = topic_id("a"), ({(topic_id("a"), 0), (topic_id("a"), 2)}, {(topic_id("a"), 1)})
    assert mapping.read_held(pb.HeldLogs(topics=[topic], missing=[missing])) == HeldLogs(
        frozenset(two),
        frozenset(one),
        frozenset({(a, 3)}),
        frozenset({("b", 4)}),
        dict.fromkeys([(a, number) for number in range(4)], b"d" * 16),
    )


def test_a_report_names_its_replicas_and_its_reply_has_a_result_for_each() -> None:
    report = pb.ReportReplicasRequest
    wire = report.Replica(topic_id=topic_id("a"), partition=2, leader_epoch=7, offline=True)
    assert mapping.read_unsound(report(replicas=[wire])) == (
        UnsoundReplica(topic_id("a"), 2, 7, offline=True),
    )
    row = ReportedReplica(topic_id("a"), 2, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)
    answer = mapping.write_reported(Reply(1, result=ReportedReplicas((row,))), "")
    (told,) = answer.replicas
    assert (told.topic_id, told.partition, told.error_code) == row
