"""Configuration in force for topics at one broker."""

import logging
from collections.abc import Mapping
from dataclasses import replace

from tidemark.model.config_values import InvalidConfigError
from tidemark.model.metadata import ClusterImage, TopicImage
from tidemark.model.topic_configs import (
    MAY_CONTRADICT,
    TOPIC_CONFIG_KEYS,
    TopicConfig,
    topic_config,
    unknown_settings,
)
from tidemark.runtime.telemetry import fields

from broker.config import BrokerConfig

log = logging.getLogger(__name__)


def broker_defaults(config: BrokerConfig, image: ClusterImage, broker_id: int) -> dict[str, str]:
    """Return a broker's settings at the start, under those set for all brokers, under those set for
    this one.
    """
    defaults = config.topic_defaults()
    for owner in ("", str(broker_id)):
        dynamic = image.broker_configs.get(owner, {})
        for key in TOPIC_CONFIG_KEYS.values():
            if key.broker_name in dynamic:
                defaults[key.name] = dynamic[key.broker_name]
    return defaults


def effective(topic: TopicImage, defaults: Mapping[str, str]) -> TopicConfig:
    """Return the configuration of a topic. Settings that cannot be in force are left out, and no
    others, since retention and durability rest on them: what this release does not know, and the
    broker's defaults of keys that contradict one another.
    """
    try:
        return topic_config(topic.configs, defaults)
    except InvalidConfigError as reason:
        unknown = unknown_settings(topic.configs)
        if not unknown:
            return _agreeing(topic, defaults, str(reason))
    log.error(
        "topic settings not known to this release",
        extra=fields(topic=topic.name, reason="; ".join(unknown.values())),
    )
    known = {name: text for name, text in topic.configs.items() if name not in unknown}
    return effective(replace(topic, configs=known), defaults)


def _agreeing(topic: TopicImage, defaults: Mapping[str, str], reason: str) -> TopicConfig:
    """Leave out defaults that contradict. The controller checks a topic's settings; together with
    this broker's they may still contradict.
    """
    log.error(
        "topic configuration contradicts the broker's",
        extra=fields(topic=topic.name, reason=reason),
    )
    agreeing = {name: text for name, text in defaults.items() if name not in MAY_CONTRADICT}
    return topic_config(topic.configs, agreeing)
