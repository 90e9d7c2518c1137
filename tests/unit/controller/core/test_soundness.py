from dataclasses import replace

import pytest
from controller.core.cluster import Cluster, check_partition
from controller.core.inputs import HeldLogs, ReportReplicas, RequestHeader, UnsoundReplica
from controller.core.soundness import Holdings, Soundness, decide_report
from hypothesis import given
from hypothesis import strategies as st
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import NO_BROKER, BrokerEpoch, BrokerId
from tidemark.model.metadata import PartitionImage
from unit.controller.worlds import NEVER, World, a_broker, a_cluster, a_topic, applied, topic_id

ID = topic_id("a")


def three(
    *, unclean: bool = False, live: tuple[int, ...] = (1, 2, 3), **changes: object
) -> Cluster:
    configs = {"unclean.leader.election.enable": str(unclean).lower(), "min.insync.replicas": "2"}
    topic = a_topic("a", (1, 2, 3), configs=configs)
    partition = replace(topic.partitions[0], **changes)  # type: ignore[arg-type]
    brokers = tuple(a_broker(one, fenced=one not in live) for one in (1, 2, 3))
    return a_cluster(replace(topic, partitions=(partition,)), brokers=brokers)


def report(
    cluster: Cluster, by: int, *, offline: bool = False, leader_epoch: int = 0
) -> tuple[ErrorCode, PartitionImage]:
    unsound = UnsoundReplica(ID, 0, leader_epoch, offline)
    request = ReportReplicas(
        RequestHeader(1, NEVER), BrokerId(by), BrokerEpoch(100 + by), (unsound,)
    )
    change, answer = decide_report(cluster, request)
    if change is not None:
        applied(cluster, change)
    return answer.replicas[0].error, cluster.image.topics["a"].partitions[0]


@pytest.mark.feature("Y09")
@pytest.mark.parametrize("offline", [False, True])
def test_a_follower_leaves_the_isr_under_another_leader_epoch(offline: bool) -> None:
    code, after = report(three(), 2, offline=offline)
    assert (code, after.isr, after.leader, after.leader_epoch) == (ErrorCode.NONE, (1, 3), 1, 1)


@pytest.mark.feature("Y09")
def test_a_damaged_leader_is_demoted_and_replaced_once_it_has_acknowledged() -> None:
    code, after = report(three(), 1)
    assert (code, after.isr, after.leader, after.last_known_leader) == (0, (2, 3), NO_BROKER, 1)


@pytest.mark.feature("Y09")
def test_an_offline_leader_is_replaced_at_once() -> None:
    code, after = report(three(), 1, offline=True)
    assert (code, after.isr, after.leader) == (ErrorCode.NONE, (2, 3), 2)


def test_an_eligible_replica_leaves_the_elr() -> None:
    _, after = report(three(isr=(1,), elr=(2, 3)), 2)
    assert (after.isr, after.elr, after.leader_epoch) == ((1,), (3,), 1)


def test_a_damaged_leader_stays_while_no_other_replica_could_lead() -> None:
    cluster = three(live=(1,))
    assert report(cluster, 1) == (
        ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE,
        three().image.topics["a"].partitions[0],
    )


def test_an_offline_leader_leaves_without_a_successor() -> None:
    code, after = report(three(live=(1,)), 1, offline=True)
    assert (code, after.isr, after.leader) == (ErrorCode.NONE, (2, 3), NO_BROKER)
    code, after = report(three(isr=(1,)), 1, offline=True)
    assert (code, after.isr, after.last_known_leader) == (ErrorCode.NONE, (), 1)


def test_an_unclean_election_does_not_choose_the_failed_replica() -> None:
    cluster = three(isr=(1,), unclean=True)
    _, after = report(cluster, 1, offline=True)
    assert (after.leader, after.isr) == (2, (2,))


def test_a_fetch_that_was_under_way_does_not_bring_a_replica_back() -> None:
    cluster = three(isr=(1, 3))
    _, after = report(cluster, 2)
    assert (after.isr, after.leader, after.leader_epoch) == ((1, 3), 1, 1)
    assert report(cluster, 2)[1] == after, "request again: no fetch of it counts in this epoch"


def test_only_replicas_that_exist_are_judged() -> None:
    cluster = three()
    assert report(cluster, 1)[0] is ErrorCode.NONE
    other = UnsoundReplica(topic_id("gone"), 0, 0, offline=True)
    beyond = UnsoundReplica(ID, 7, 0, offline=True)
    request = ReportReplicas(
        RequestHeader(1, NEVER), BrokerId(2), BrokerEpoch(102), (other, beyond)
    )
    _, answer = decide_report(cluster, request)
    assert [one.error for one in answer.replicas] == [
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]


def test_a_broker_that_is_not_registered_so_reports_nothing() -> None:
    request = ReportReplicas(RequestHeader(1, NEVER), BrokerId(1), BrokerEpoch(7), ())
    with pytest.raises(TidemarkError, match="registered under 101"):
        decide_report(three(), request)


def test_the_only_replica_stays() -> None:
    cluster = a_cluster(a_topic("a", (1,)))
    assert report(cluster, 1, offline=True)[0] is ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    assert cluster.image.topics["a"].partitions[0].isr == (1,)


def test_the_machine_answers_once_it_is_written() -> None:
    world = World(brokers=2)
    request = ReportReplicas(RequestHeader(5, NEVER), BrokerId(1), BrokerEpoch(101), ())
    assert world.ask(request).error is ErrorCode.NONE


MEMBERS = st.sets(st.sampled_from((1, 2, 3)))


@st.composite
def clusters(draw: st.DrawFn) -> Cluster:
    isr = tuple(sorted(draw(MEMBERS)))
    elr = tuple(sorted(draw(MEMBERS) - set(isr)))
    leader = draw(st.sampled_from((NO_BROKER, *isr)))
    last = draw(st.sampled_from((1, 2, 3))) if leader == NO_BROKER else NO_BROKER
    live = tuple(draw(MEMBERS))
    return three(
        live=(1, *live),
        unclean=draw(st.booleans()),
        isr=isr,
        elr=elr,
        leader=leader,
        last_known_leader=last,
        leader_epoch=4,
        partition_epoch=9,
    )


@given(clusters(), st.booleans(), st.integers(2, 4))
def test_a_reported_replica_is_no_member_or_no_other_could_lead(
    cluster: Cluster, offline: bool, leader_epoch: int
) -> None:
    before = cluster.image.topics["a"].partitions[0]
    code, after = report(cluster, 1, offline=offline, leader_epoch=leader_epoch)
    check_partition(after)
    members = {*after.isr, *after.elr}
    if code is ErrorCode.NONE:
        assert 1 not in members
        assert after.leader != 1
        assert after == before or after.leader_epoch > before.leader_epoch
        assert after.leader_epoch > leader_epoch
    else:
        live = {one.broker_id for one in cluster.image.brokers.values() if not one.fenced}
        assert not offline
        assert members & live == {1}
        assert after == before


HERE = frozenset({(ID, 0)})
BY_NAME = frozenset({("a", 0)})


@pytest.mark.feature("G17")
@pytest.mark.parametrize(
    ("held", "epoch", "gone", "expected"),
    [
        (HeldLogs(sound=HERE), 3, True, Soundness.SOUND),
        (HeldLogs(damaged=HERE), 3, False, Soundness.DAMAGED),
        (HeldLogs(lost=HERE), 0, False, Soundness.LOST),
        (HeldLogs(missing=BY_NAME), 0, False, Soundness.LOST),
        (HeldLogs(), 0, False, Soundness.SOUND),  # never made
        (HeldLogs(), 0, True, Soundness.LOST),
        (HeldLogs(), 3, False, Soundness.LOST),
    ],
)
def test_the_soundness_of_a_replica_follows_from_the_logs_of_its_broker(
    held: HeldLogs, epoch: int, gone: bool, expected: Soundness
) -> None:
    topic = three(partition_epoch=epoch).image.topics["a"]
    found = Holdings(held, nothing_kept=False, directory_gone=gone)
    assert found.soundness(topic, topic.partitions[0]) is expected
    nothing = replace(found, nothing_kept=True)
    assert nothing.soundness(topic, topic.partitions[0]) is Soundness.LOST
