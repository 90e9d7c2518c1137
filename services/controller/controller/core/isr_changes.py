"""Decisions on ISRs that leaders propose (AlterPartitions)."""

from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import BrokerId, TopicId
from tidemark.model.metadata import ClusterDelta, ClusterImage, PartitionImage

from controller.core.cluster import Change, Cluster, with_partitions
from controller.core.effects import AlteredPartition, AlteredPartitions
from controller.core.inputs import AlterPartitions, IsrChange
from controller.core.isr import with_isr
from controller.core.reassignments import completed
from controller.core.topic_rules import rules_of

Drafts = dict[TopicId, dict[int, PartitionImage]]


def decide_alter_partitions(
    cluster: Cluster, request: AlterPartitions
) -> tuple[Change | None, AlteredPartitions]:
    """Decide on each partition alone. Raises TidemarkError STALE_BROKER_EPOCH if the proposer is
    not registered under its epoch.
    """
    image = cluster.image
    check_broker_epoch(image, request.broker_id, request.broker_epoch)
    drafts: Drafts = {}
    results = [_decide(image, request.broker_id, change, drafts) for change in request.changes]
    if not drafts:
        return None, AlteredPartitions(tuple(results))
    topics = with_partitions(image, drafts)
    return Change(ClusterDelta(topics_changed=topics)), AlteredPartitions(tuple(results))


def check_broker_epoch(image: ClusterImage, broker_id: BrokerId, broker_epoch: int) -> None:
    """Raise TidemarkError STALE_BROKER_EPOCH unless the broker is registered under this epoch."""
    broker = image.brokers.get(broker_id)
    if broker is None or broker.broker_epoch != broker_epoch:
        state = "not registered" if broker is None else f"registered under {broker.broker_epoch}"
        raise TidemarkError(
            ErrorCode.STALE_BROKER_EPOCH, f"broker {broker_id} is {state}, not {broker_epoch}"
        )


def _decide(
    image: ClusterImage, broker_id: BrokerId, change: IsrChange, drafts: Drafts
) -> AlteredPartition:
    topic = image.topics_by_id.get(change.topic_id)
    if topic is None or not 0 <= change.partition < len(topic.partitions):
        code = ErrorCode.UNKNOWN_TOPIC_ID if topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return AlteredPartition(change.topic_id, change.partition, code, None)
    partition = drafts.get(topic.topic_id, {}).get(
        change.partition, topic.partitions[change.partition]
    )
    code = _refusal(image, partition, broker_id, change)
    if code is ErrorCode.NONE:
        isr = tuple(member.broker_id for member in change.isr)
        partition = with_isr(partition, isr, rules_of(image, topic).min_insync_replicas)
        partition = completed(partition)
        drafts.setdefault(topic.topic_id, {})[change.partition] = partition
    return AlteredPartition(change.topic_id, change.partition, code, partition)


def _refusal(
    image: ClusterImage, partition: PartitionImage, broker_id: BrokerId, change: IsrChange
) -> ErrorCode:
    """Return the error of a proposal. Epochs are checked first, so that any other error means that
    the proposal was never agreed.
    """
    if change.leader_epoch > partition.leader_epoch:
        return ErrorCode.NOT_CONTROLLER
    if partition.leader != broker_id or change.leader_epoch < partition.leader_epoch:
        return ErrorCode.FENCED_LEADER_EPOCH
    if change.partition_epoch != partition.partition_epoch:
        return ErrorCode.INVALID_UPDATE_VERSION
    members = [member.broker_id for member in change.isr]
    if broker_id not in members or len(set(members)) != len(members):
        return ErrorCode.INVALID_REQUEST
    if not set(members) <= set(partition.replicas):
        return ErrorCode.INVALID_REQUEST
    if image.brokers[broker_id].fenced and not set(partition.isr) <= set(members):
        return ErrorCode.INELIGIBLE_REPLICA  # it is about to be replaced by one of them
    joining = [one for one in change.isr if one.broker_id not in partition.isr]
    if all(_may_join(image, one.broker_id, one.broker_epoch) for one in joining):
        return ErrorCode.NONE
    return ErrorCode.INELIGIBLE_REPLICA


def _may_join(image: ClusterImage, broker_id: BrokerId, broker_epoch: int) -> bool:
    """True if the broker is alive, under the epoch that the leader has seen (KIP-903)."""
    broker = image.brokers.get(broker_id)
    return (
        broker is not None
        and not broker.fenced
        and not broker.shutting_down
        and broker_epoch == broker.broker_epoch
    )
