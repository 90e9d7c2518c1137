"""Risks of a restart of one broker, or of an empty disk for it, from the metadata image."""

from collections import defaultdict
from collections.abc import Iterable

from pydantic import Field
from tidemark.model import replacement_risks as replacement
from tidemark.model.authorization import Operation
from tidemark.model.metadata import ClusterImage
from tidemark.model.restart_risks import MEANING, PartitionState, RiskKind, restart_risks
from tidemark.model.topics import TopicPartition

from controller.admin.brokers import require_broker
from controller.admin.context import AdminContext
from controller.admin.models import Model, PartitionName
from controller.admin.topics import min_insync_replicas

PARTITIONS_SHOWN_MAX = 100


class RiskView(Model):
    """Risk of one kind, with the partitions that have it."""

    kind: str = Field(
        description="of a restart: replication_factor_1, unavailable, below_min_isr or acks_1_loss;"
        " of a replacement: only_replica, no_leader or others_not_in_sync",
        examples=["below_min_isr"],
    )
    meaning: str = Field(examples=["writes with acks=all are refused until the broker is back"])
    partitions_count: int = Field(examples=[2])
    partitions: list[PartitionName] = Field(description=f"the first {PARTITIONS_SHOWN_MAX} of them")


class BrokerCheck(Model):
    """State of the cluster, and the risks of an action on one broker."""

    broker_id: int = Field(examples=[1])
    brokers_fenced: list[int] = Field(
        description="registered brokers of the cluster that are not alive", examples=[[]]
    )
    partitions_not_whole: int = Field(
        description="partitions of the cluster that have no leader, or a replica that is not in"
        " sync",
        examples=[0],
    )
    risks: list[RiskView]


class RestartCheck(BrokerCheck):
    """Answer to the question if a broker may restart. ``unchecked`` lists the kinds of risk that
    could not be checked, with the reason.
    """

    can_restart: bool = Field(description="true if there is no risk", examples=[True])
    unchecked: list[str] = Field(examples=[[]])


class ReplacementCheck(BrokerCheck):
    """Answer to the question if a broker may get an empty disk in place of a lost one."""

    can_replace: bool = Field(
        description="true if the broker is not alive and there is no risk", examples=[True]
    )


async def gate(ctx: AdminContext, broker_id: int) -> RestartCheck:
    """Return the risks of a restart to the gate of a roll, which waits while there are any, and
    count them. Raises AdminError.
    """
    check = await can_restart(ctx, broker_id)
    for risk in check.risks:
        ctx.shared.gates.deferrals.at(risk.kind).value += 1
    return check


async def can_restart(ctx: AdminContext, broker_id: int) -> RestartCheck:
    """Return the risks of a restart of this broker. Raises AdminError."""
    ctx.require(Operation.DESCRIBE)
    require_broker(ctx, broker_id)
    states = _states(ctx.image)
    found = restart_risks(broker_id, states)
    led = sum(one.leader == broker_id and len(one.replicas) > 1 for one in states)
    unchecked = [
        f"{RiskKind.ACKS_1_LOSS.value}: records written with acks=1 to the {led} partitions that it"
        " leads may not be on another replica yet; a clean stop hands them over"
    ]
    return RestartCheck(
        broker_id=broker_id,
        brokers_fenced=_fenced(ctx.image),
        partitions_not_whole=_not_whole(states),
        can_restart=not found,
        risks=_views((risk.kind, MEANING[risk.kind], risk.partition) for risk in found),
        unchecked=unchecked if led else [],
    )


async def can_replace(ctx: AdminContext, broker_id: int) -> ReplacementCheck:
    """Return the risks of an empty disk for this broker. Raises AdminError."""
    ctx.require(Operation.DESCRIBE)
    require_broker(ctx, broker_id)
    return replacement_check(ctx.image, broker_id)


def replacement_check(image: ClusterImage, broker_id: int) -> ReplacementCheck:
    """Return the risks of an empty disk for a registered broker."""
    states, fenced = _states(image), _fenced(image)
    found = replacement.replacement_risks(broker_id, states)
    return ReplacementCheck(
        broker_id=broker_id,
        brokers_fenced=fenced,
        partitions_not_whole=_not_whole(states),
        can_replace=broker_id in fenced and not found,
        risks=_views((risk.kind, replacement.MEANING[risk.kind], risk.partition) for risk in found),
    )


def _fenced(image: ClusterImage) -> list[int]:
    return sorted(int(one) for one, broker in image.brokers.items() if broker.fenced)


def _not_whole(states: Iterable[PartitionState]) -> int:
    return sum(one.leader is None or len(one.isr) < len(one.replicas) for one in states)


def _views(risks: Iterable[tuple[str, str, TopicPartition]]) -> list[RiskView]:
    """Return the risks by kind, in the order in which the kinds come."""
    by_kind: dict[tuple[str, str], list[TopicPartition]] = defaultdict(list)
    for kind, meaning, partition in risks:
        by_kind[kind, meaning].append(partition)
    return [
        RiskView(
            kind=str(kind),
            meaning=meaning,
            partitions_count=len(at),
            partitions=[
                PartitionName(topic_name=one.topic, partition_id=one.partition)
                for one in at[:PARTITIONS_SHOWN_MAX]
            ],
        )
        for (kind, meaning), at in by_kind.items()
    ]


def _states(image: ClusterImage) -> list[PartitionState]:
    return [
        PartitionState(
            TopicPartition(topic.name, one.partition),
            None if one.leader < 0 else int(one.leader),
            tuple(int(each) for each in one.replicas),
            tuple(int(each) for each in one.isr),
            min_insync_replicas(image, topic),
        )
        for topic in image.topics.values()
        for one in topic.partitions
    ]
