from dataclasses import replace

from controller.core.elr_on_config_change import decide_configs
from controller.core.inputs import (
    AlterConfigs,
    ConfigChange,
    ConfigOperation,
    ConfigResource,
    RequestHeader,
)
from tidemark.model.ids import BrokerId
from unit.controller.worlds import NEVER, a_cluster, a_topic, applied


def test_another_minimum_clears_the_elr() -> None:
    topic = a_topic("a", (1, 2), configs={"min.insync.replicas": "2"})
    below = replace(topic.partitions[0], isr=(BrokerId(1),), elr=(BrokerId(2),))
    cluster = a_cluster(replace(topic, partitions=(below,)))
    change = ConfigChange("min.insync.replicas", ConfigOperation.SET, "1")
    request = AlterConfigs(RequestHeader(1, NEVER), (ConfigResource(2, "a", (change,)),))
    applied(cluster, decide_configs(cluster, request)[0])
    after = cluster.image.topics["a"].partitions[0]
    assert (after.elr, after.partition_epoch) == ((), 1)
