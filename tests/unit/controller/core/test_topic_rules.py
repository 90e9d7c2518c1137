from controller.core.election_rules import TopicRules
from controller.core.topic_rules import rules_of
from unit.controller.worlds import a_cluster, a_topic


def test_a_topic_without_settings_has_the_defaults() -> None:
    topic = a_topic("a", (1,))
    assert rules_of(a_cluster(topic).image, topic) == TopicRules(1, False)


def test_its_own_settings_come_before_the_clusters() -> None:
    topic = a_topic("a", (1,), configs={"min.insync.replicas": "2"})
    configs = {"": {"min.insync.replicas": "3", "unclean.leader.election.enable": "true"}}
    assert rules_of(a_cluster(topic, configs=configs).image, topic) == TopicRules(2, True)
