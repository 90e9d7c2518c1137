import pytest
from controller.core.cluster import Cluster
from controller.core.effects import AlteredPartition
from controller.core.inputs import AlterPartitions, IsrChange, IsrMember, RequestHeader
from controller.core.isr_changes import decide_alter_partitions
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import BrokerEpoch, BrokerId
from unit.controller.worlds import NEVER, a_broker, a_cluster, a_topic, applied, topic_id


def three(**changes: object) -> Cluster:
    brokers = (a_broker(1), a_broker(2), a_broker(3, **changes))  # type: ignore[arg-type]
    return a_cluster(a_topic("a", (1, 2, 3)), brokers=brokers)


def propose(
    cluster: Cluster, *isr: int, leader_epoch: int = 0, partition_epoch: int = 0, by: int = 1
) -> AlteredPartition:
    members = tuple(IsrMember(BrokerId(one), BrokerEpoch(100 + one)) for one in isr)
    change = IsrChange(topic_id("a"), 0, leader_epoch, partition_epoch, members)
    request = AlterPartitions(
        RequestHeader(1, NEVER), BrokerId(by), BrokerEpoch(100 + by), (change,)
    )
    made, results = decide_alter_partitions(cluster, request)
    if made is not None:
        applied(cluster, made)
    return results.partitions[0]


@pytest.mark.feature("G17", "J1")
def test_a_shrink_is_agreed_under_the_next_partition_epoch() -> None:
    answer = propose(three(), 1, 2)
    assert answer.error is ErrorCode.NONE
    assert answer.state is not None
    assert (answer.state.isr, answer.state.partition_epoch) == ((1, 2), 1)


def test_a_proposal_on_an_old_state_is_refused_with_the_state() -> None:
    cluster = three()
    propose(cluster, 1, 2)
    again = propose(cluster, 1, 3)
    assert again.error is ErrorCode.INVALID_UPDATE_VERSION
    assert again.state == cluster.image.topics["a"].partitions[0]


def test_only_the_leader_of_this_epoch_proposes() -> None:
    assert propose(three(), 2, 1, by=2).error is ErrorCode.FENCED_LEADER_EPOCH


@pytest.mark.parametrize("changes", [{"fenced": True}, {"shutting_down": True}, {"epoch": 200}])
def test_a_broker_under_another_epoch_may_not_join(changes: dict[str, object]) -> None:
    cluster = three(**changes)
    assert propose(cluster, 1, 2).error is ErrorCode.NONE
    answer = propose(cluster, 1, 2, 3, partition_epoch=1)
    assert answer.error is ErrorCode.INELIGIBLE_REPLICA


@pytest.mark.feature("J3")
def test_a_member_without_a_session_may_stay() -> None:
    assert propose(three(fenced=True), 1, 3).error is ErrorCode.NONE


def test_a_leader_without_a_session_removes_nobody() -> None:
    """The others may have to lead a lease later; alone in the ISR it would take the partition with
    it.
    """
    brokers = (a_broker(1, fenced=True), a_broker(2), a_broker(3))
    cluster = a_cluster(a_topic("a", (1, 2, 3)), brokers=brokers)
    answer = propose(cluster, 1, 2)
    assert answer.error is ErrorCode.INELIGIBLE_REPLICA
    assert answer.state == cluster.image.topics["a"].partitions[0]


@pytest.mark.parametrize("isr", [(2, 3), (1, 1), (1, 7)])
def test_an_isr_that_cannot_be_is_refused(isr: tuple[int, ...]) -> None:
    assert propose(three(), *isr).error is ErrorCode.INVALID_REQUEST


def test_a_proposer_of_another_epoch_is_refused_as_a_whole() -> None:
    request = AlterPartitions(RequestHeader(1, NEVER), BrokerId(1), BrokerEpoch(7), ())
    with pytest.raises(TidemarkError) as refused:
        decide_alter_partitions(three(), request)
    assert refused.value.code is ErrorCode.STALE_BROKER_EPOCH
