"""Configuration of a topic that elections need: its own settings, else the cluster's defaults."""

from typing import Final

from tidemark.model.metadata import ClusterImage, TopicImage

from controller.core.configs import CLUSTER_WIDE, MIN_INSYNC, topic_defaults
from controller.core.election_rules import TopicRules

UNCLEAN: Final = "unclean.leader.election.enable"


def rules_of(image: ClusterImage, topic: TopicImage) -> TopicRules:
    """Return a topic's rules for elections. Defaults in the configuration file of a single broker
    are not known here.
    """
    if not topic.configs and not image.broker_configs:
        return TopicRules()
    defaults = topic_defaults(image.broker_configs.get(CLUSTER_WIDE, {}))
    minimum = topic.configs.get(MIN_INSYNC, defaults.get(MIN_INSYNC, "1"))
    unclean = topic.configs.get(UNCLEAN, defaults.get(UNCLEAN, "false"))
    return TopicRules(int(minimum), unclean.strip().lower() == "true")
