"""Risks of a restart of one broker, from the metadata image and the ends of replicas."""

from pydantic import Field
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
        description="replication_factor_1, unavailable, below_min_isr or acks_1_loss",
        examples=["below_min_isr"],
    )
    meaning: str = Field(examples=["writes with acks=all are refused until the broker is back"])
    partitions_count: int = Field(examples=[2])
    partitions: list[PartitionName] = Field(description=f"the first {PARTITIONS_SHOWN_MAX} of them")


class RestartCheck(Model):
    """Answer to the question if a broker may restart. ``unchecked`` lists the kinds of risk that
    could not be checked, with the reason.
    """

    broker_id: int = Field(examples=[1])
    can_restart: bool = Field(description="true if there is no risk", examples=[True])
    risks: list[RiskView]
    unchecked: list[str] = Field(examples=[[]])


async def can_restart(ctx: AdminContext, broker_id: int) -> RestartCheck:
    """Return the risks of a restart of this broker. Raises AdminError."""
    require_broker(ctx, broker_id)
    found = restart_risks(broker_id, _states(ctx.image))
    risks: list[RiskView] = []
    for kind in RiskKind:
        at = [risk.partition for risk in found if risk.kind is kind]
        if at:
            risks.append(
                RiskView(
                    kind=kind.value,
                    meaning=MEANING[kind],
                    partitions_count=len(at),
                    partitions=[
                        PartitionName(topic_name=one.topic, partition_id=one.partition)
                        for one in at[:PARTITIONS_SHOWN_MAX]
                    ],
                )
            )
    led = sum(
        one.leader == broker_id and len(one.replicas) > 1
        for topic in ctx.image.topics.values()
        for one in topic.partitions
    )
    unchecked = [
        f"{RiskKind.ACKS_1_LOSS.value}: records written with acks=1 to the {led} partitions that it"
        " leads may not be on another replica yet; a clean stop hands them over"
    ]
    return RestartCheck(
        broker_id=broker_id,
        can_restart=not risks,
        risks=risks,
        unchecked=unchecked if led else [],
    )


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
