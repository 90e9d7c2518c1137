"""Answers of the paths of configurations."""

from controller.admin.configs import ConfigSynonym, ConfigView
from controller.rest.configs import TopicConfigData, listed_topic_configs, topic_config
from controller.rest.shapes import Links

VIEW = ConfigView(
    name="retention.ms",
    value="5",
    is_default=False,
    is_read_only=False,
    is_sensitive=False,
    source="DYNAMIC_TOPIC_CONFIG",
    synonyms=[ConfigSynonym(name="log.retention.ms", value="9", source="DEFAULT_CONFIG")],
    type="long",
    documentation=None,
)


def test_a_setting_of_a_list_of_many_topics_is_the_same_as_alone() -> None:
    here = Links("http://127.0.0.1:8080", "c1", "http://127.0.0.1:8080/v3")
    (listed,) = listed_topic_configs(here, "a/b c", [VIEW])
    assert TopicConfigData.model_validate(listed) == topic_config(here, "a/b c", VIEW)
