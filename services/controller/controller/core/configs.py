"""Decisions on dynamic configuration of topics, of one broker, of all brokers, of groups, and of
subscriptions to metrics of clients.
"""

import difflib
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from tidemark.model.broker_configs import BROKER_CONFIG_KINDS, TOPIC_KEY_OF, contradiction
from tidemark.model.client_metrics_configs import (
    CLIENT_METRICS_CONFIG_KINDS,
    check_subscription,
)
from tidemark.model.config_values import ConfigKind, InvalidConfigError
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.group_configs import GROUP_CONFIG_KINDS, check_values
from tidemark.model.metadata import ClusterDelta, TopicImage
from tidemark.model.topic_configs import TOPIC_CONFIG_KEYS, topic_config

from controller.core.cluster import Change, Cluster
from controller.core.effects import ConfigResult
from controller.core.inputs import AlterConfigs, ConfigChange, ConfigOperation, ConfigResource

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
CLIENT_METRICS_RESOURCE: Final = 16
GROUP_RESOURCE: Final = 32
CLUSTER_WIDE: Final = ""
CONFIG_CHARS_MAX: Final = 64 * 1024
VALUE_BYTES_MAX: Final = 32_767
"""Longest value that DescribeConfigs can return before version 4."""
MIN_INSYNC: Final = "min.insync.replicas"

GROUPS_MAX: Final = 10_000
"""Number of groups that may have configuration. All of it is part of every snapshot."""
GROUP_NAME_BYTES_MAX: Final = 255
"""Longest name of a group that may have configuration: it is the name of a znode."""
SUBSCRIPTIONS_MAX: Final = 1_000
"""Number of subscriptions to metrics of clients. A broker compares each new client with all."""
SUBSCRIPTION_NAME_BYTES_MAX: Final = 255

_LIST_TYPE: Final = 7
Configs = dict[str, str]


def check_topic_configs(
    configs: Mapping[str, str], broker_configs: Mapping[str, Mapping[str, str]]
) -> None:
    """Raise TidemarkError INVALID_CONFIG, with Kafka's message, for invalid configuration."""
    _check_size(configs)
    try:
        topic_config(configs, topic_defaults(broker_configs.get(CLUSTER_WIDE, {})))
    except InvalidConfigError as error:
        raise TidemarkError(ErrorCode.INVALID_CONFIG, str(error)) from None


def _check_size(configs: Mapping[str, str]) -> None:
    """Bound the configuration of a resource: it is one znode, and part of every snapshot."""
    chars = sum(len(name) + len(value) for name, value in configs.items())
    if chars > CONFIG_CHARS_MAX:
        raise TidemarkError(
            ErrorCode.INVALID_CONFIG,
            f"the configuration has {chars} characters; it may have {CONFIG_CHARS_MAX}",
        )
    for name, value in configs.items():
        if len(value.encode()) > VALUE_BYTES_MAX:
            raise TidemarkError(
                ErrorCode.INVALID_CONFIG,
                f"the value of {name[:100]} takes more than {VALUE_BYTES_MAX} bytes",
            )


def topic_defaults(broker: Mapping[str, str]) -> Configs:
    """Return the topic defaults that a broker's configuration sets, by the names of topic keys."""
    return {TOPIC_KEY_OF[name]: value for name, value in broker.items() if name in TOPIC_KEY_OF}


def decide_alter_configs(
    cluster: Cluster, request: AlterConfigs
) -> tuple[Change | None, tuple[ConfigResult, ...]]:
    """Return the change, if any, and the results to send once it is written. Each resource succeeds
    or fails alone.
    """
    times = Counter((item.resource_type, item.resource_name) for item in request.resources)
    topics: list[TopicImage] = []
    brokers: dict[str, Configs] = {}
    groups: dict[str, Configs] = {}
    subscriptions: dict[str, Configs] = {}
    results: list[ConfigResult] = []
    for item in request.resources:
        key = (item.resource_type, item.resource_name)
        try:
            _refuse_if(times[key] > 1, "Each resource must appear at most once.")
            if item.resource_type == TOPIC_RESOURCE:
                topics += _alter_topic(cluster, item)
            elif item.resource_type == GROUP_RESOURCE:
                groups.update(_alter_group(cluster, item, new=len(groups)))
            elif item.resource_type == CLIENT_METRICS_RESOURCE:
                subscriptions.update(_alter_subscription(cluster, item, new=len(subscriptions)))
            else:
                brokers.update(_alter_broker(cluster, item))
        except TidemarkError as error:
            results.append(ConfigResult(*key, error.code, error.message))
        else:
            results.append(ConfigResult(*key))
    if request.validate_only or not (topics or brokers or groups or subscriptions):
        return None, tuple(results)
    delta = ClusterDelta(
        topics_changed=tuple(topics),
        broker_configs_changed=brokers,
        group_configs_changed=groups,
        client_metrics_changed=subscriptions,
    )
    return Change(delta), tuple(results)


def _refuse_if(wrong: bool, words: str) -> None:  # noqa: FBT001 - reads as a sentence
    if wrong:
        raise TidemarkError(ErrorCode.INVALID_REQUEST, words)


def _alter_topic(cluster: Cluster, item: ConfigResource) -> list[TopicImage]:
    topic = cluster.image.topics.get(item.resource_name)
    if topic is None:
        raise TidemarkError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"The topic '{item.resource_name}' does not exist.",
        )
    defaults = topic_defaults(cluster.image.broker_configs.get(CLUSTER_WIDE, {}))
    texts = {key.name: key.default for key in TOPIC_CONFIG_KEYS.values()} | defaults
    kinds = {key.name: key.kind for key in TOPIC_CONFIG_KEYS.values()}
    configs = _altered(topic.configs, item, kinds, texts)
    check_topic_configs(configs, cluster.image.broker_configs)
    return [] if configs == topic.configs else [replace(topic, configs=configs)]


def _alter_broker(cluster: Cluster, item: ConfigResource) -> dict[str, Configs]:
    _check_broker(cluster, item)
    name = item.resource_name
    present = cluster.image.broker_configs.get(name, {})
    texts = {broker: TOPIC_CONFIG_KEYS[topic].default for broker, topic in TOPIC_KEY_OF.items()}
    texts |= cluster.image.broker_configs.get(CLUSTER_WIDE, {})
    configs = _altered(present, item, BROKER_CONFIG_KINDS, texts)
    if name != CLUSTER_WIDE and MIN_INSYNC in configs:
        raise TidemarkError(
            ErrorCode.INVALID_CONFIG,
            f"{MIN_INSYNC} is set for a topic or for all brokers, not for one: who may lead after"
            " leaving the ISR rests on one minimum (KIP-966)",
        )
    _check_size(configs)
    _check_dynamic(configs)
    for key, value in configs.items():
        _check_broker_value(key, value)
    problem = contradiction(configs)
    if problem is not None:
        raise TidemarkError(ErrorCode.INVALID_REQUEST, problem)
    try:
        topic_config({}, topic_defaults(configs))
    except InvalidConfigError as error:
        raise TidemarkError(ErrorCode.INVALID_REQUEST, str(error)) from None
    return {} if configs == present else {name: configs}


def _alter_group(cluster: Cluster, item: ConfigResource, *, new: int) -> dict[str, Configs]:
    """Return the group's new configuration, by its name; empty: it stays. The group need not exist:
    the configuration is in force from its first member on. The broker that relayed the request has
    checked the bounds. ``new`` counts the groups that this request has already configured.
    """
    name = item.resource_name
    _refuse_if(not name, "Default group resources are not allowed.")
    _refuse_if(
        len(name.encode()) > GROUP_NAME_BYTES_MAX,
        f"A group whose name has more than {GROUP_NAME_BYTES_MAX} bytes has no configuration.",
    )
    all_groups = cluster.image.group_configs
    present = all_groups.get(name, {})
    configs = _altered(present, item, GROUP_CONFIG_KINDS, {})
    try:
        check_values(configs)
    except InvalidConfigError as error:
        raise TidemarkError(ErrorCode.INVALID_CONFIG, str(error)) from None
    if configs and not present and len(all_groups) + new >= GROUPS_MAX:
        raise TidemarkError(
            ErrorCode.POLICY_VIOLATION, f"{GROUPS_MAX} groups have configuration; no more may"
        )
    return {} if configs == present else {name: configs}


def _alter_subscription(cluster: Cluster, item: ConfigResource, *, new: int) -> dict[str, Configs]:
    """Return the new configuration of a subscription to metrics of clients, by its name; empty: it
    stays. The broker that relayed the request has checked the syntax of patterns. ``new`` counts
    the subscriptions that this request has already changed.
    """
    name = item.resource_name
    _refuse_if(not name, "Subscription name can't be empty")
    _refuse_if(
        len(name.encode()) > SUBSCRIPTION_NAME_BYTES_MAX,
        f"The name of a subscription may have {SUBSCRIPTION_NAME_BYTES_MAX} bytes.",
    )
    subscriptions = cluster.image.client_metrics
    present = subscriptions.get(name, {})
    configs = _altered(present, item, CLIENT_METRICS_CONFIG_KINDS, {})
    _check_size(configs)
    check_subscription(configs)
    if configs and not present and len(subscriptions) + new >= SUBSCRIPTIONS_MAX:
        raise TidemarkError(
            ErrorCode.POLICY_VIOLATION,
            f"there are {SUBSCRIPTIONS_MAX} subscriptions to client metrics; no more may be made",
        )
    return {} if configs == present else {name: configs}


def _check_broker(cluster: Cluster, item: ConfigResource) -> None:
    name = item.resource_name
    _refuse_if(
        item.resource_type != BROKER_RESOURCE,
        f"Unexpected resource type {item.resource_type}: expected 2 (topic), 4 (broker),"
        " 16 (client metrics) or 32 (group).",
    )
    if name == CLUSTER_WIDE:
        return
    _refuse_if(
        not (name.isascii() and name.isdecimal()),
        f"Node id must be an integer, but it is: {name}",
    )
    # The name may have more digits than Python reads.
    if all(str(broker_id) != name for broker_id in cluster.image.brokers):
        raise TidemarkError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker with id {name} found.")


def _check_dynamic(configs: Mapping[str, str]) -> None:
    """Raise INVALID_REQUEST, with Kafka's message, for settings that only a restart changes."""
    fixed = [name for name in configs if name not in BROKER_CONFIG_KINDS]
    if fixed:
        near = difflib.get_close_matches(fixed[0], BROKER_CONFIG_KINDS, n=1)
        raise TidemarkError(
            ErrorCode.INVALID_REQUEST,
            f"Cannot update these configs dynamically: [{', '.join(fixed)}]"
            + (f"; did you mean {near[0]}?" if near else ""),
        )


def _check_broker_value(name: str, text: str) -> None:
    """Raise INVALID_REQUEST, where a topic's key has INVALID_CONFIG: KAFKA-13609."""
    try:
        BROKER_CONFIG_KINDS[name].parse(text)
    except InvalidConfigError as error:
        raise TidemarkError(
            ErrorCode.INVALID_REQUEST, f"Invalid value {text} for configuration {name}: {error}"
        ) from None


def _altered(
    present: Mapping[str, str],
    item: ConfigResource,
    kinds: Mapping[str, ConfigKind],
    defaults: Mapping[str, str],
) -> Configs:
    """Return the configuration after the changes. The caller checks the values."""
    times = Counter(change.name for change in item.changes)
    _refuse_if(any(count > 1 for count in times.values()), "Error due to duplicate config keys")
    configs = {} if item.replace_all else dict(present)
    for change in item.changes:
        match change.operation:
            case ConfigOperation.SET:
                configs[change.name] = change.value
            case ConfigOperation.DELETE:
                configs.pop(change.name, None)
            case ConfigOperation.APPEND | ConfigOperation.SUBTRACT:
                text = configs.get(change.name, defaults.get(change.name, ""))
                configs[change.name] = _list_changed(change, kinds.get(change.name), text)
    return configs


def _list_changed(change: ConfigChange, kind: ConfigKind | None, text: str) -> str:
    """Return the effective list with missing items appended, or with the named ones removed."""
    if kind is not None and kind.type_number != _LIST_TYPE:
        raise TidemarkError(
            ErrorCode.INVALID_CONFIG,
            f"Can't {change.operation.name} to key {change.name} because its type is not LIST.",
        )
    present = [item.strip() for item in text.split(",") if item.strip()]
    named = [item.strip() for item in change.value.split(",") if item.strip()]
    if change.operation is ConfigOperation.APPEND:
        return ",".join(present + [item for item in named if item not in present])
    return ",".join(item for item in present if item not in named)
