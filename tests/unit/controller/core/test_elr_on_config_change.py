from dataclasses import replace

from controller.core.elr_on_config_change import decide_configs
from controller.core.inputs import (
    AlterConfigs,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    RequestHeader,
)
from tidemark.model.ids import NO_BROKER, BrokerId
from tidemark.model.metadata import PartitionImage
from unit.controller.worlds import NEVER, a_cluster, a_topic, applied

TOPIC = a_topic("a", (1, 2), configs={"min.insync.replicas": "2"})


def with_minimum_of_one(state: PartitionImage) -> PartitionImage:
    """Return this partition of a topic after its minimum was lowered."""
    cluster = a_cluster(replace(TOPIC, partitions=(state,)))
    change = ConfigChange("min.insync.replicas", ConfigOperation.SET, "1")
    request = AlterConfigs(RequestHeader(1, NEVER), (ConfigResource(2, "a", (change,)),))
    applied(cluster, decide_configs(cluster, request)[0])
    return cluster.image.topics["a"].partitions[0]


def test_another_minimum_clears_the_elr() -> None:
    below = replace(TOPIC.partitions[0], isr=(BrokerId(1),), elr=(BrokerId(2),))
    after = with_minimum_of_one(below)
    assert (after.elr, after.partition_epoch) == ((), 1)


def test_without_anybody_in_sync_those_that_are_eligible_stay_so() -> None:
    """No other replica is known to have all committed records, and nobody commits any."""
    lost = replace(
        TOPIC.partitions[0],
        isr=(),
        elr=(BrokerId(2),),
        leader=NO_BROKER,
        last_known_leader=BrokerId(1),
    )
    assert with_minimum_of_one(lost).elr == (2,)
