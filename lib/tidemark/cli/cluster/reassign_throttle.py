"""Throttle of moves (KIP-73), set and removed as Kafka's own tool does."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from tidemark.client.admin.admin import Admin, AlterConfig, ConfigResource
from tidemark.model.topics import TopicPartition

LEADER_RATE: Final = "leader.replication.throttled.rate"
FOLLOWER_RATE: Final = "follower.replication.throttled.rate"
LEADER_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS: Final = "follower.replication.throttled.replicas"
RATES: Final = (LEADER_RATE, FOLLOWER_RATE)
REPLICAS: Final = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
ALL_REPLICAS: Final = "*"
_SET_HERE: Final = {"topic": "topic", "broker": "broker"}
"""Source of a value that is set on the resource itself."""

Changes = dict[ConfigResource, list[AlterConfig]]


class Flow(NamedTuple):
    """Brokers from which and to which one partition is copied."""

    sources: tuple[int, ...]
    destinations: tuple[int, ...]


def throttles(flows: Mapping[TopicPartition, Flow], rate: int) -> Changes:
    """Return the configurations to set: the rate on every broker involved, and on topics the
    replicas to which it applies. All sources are listed, because any may lead during the move.
    """
    leaders: dict[str, list[str]] = defaultdict(list)
    followers: dict[str, list[str]] = defaultdict(list)
    brokers: set[int] = set()
    for (topic, partition), flow in sorted(flows.items()):
        if not flow.destinations:
            continue
        brokers |= {*flow.sources, *flow.destinations}
        leaders[topic] += [f"{partition}:{broker}" for broker in flow.sources]
        followers[topic] += [f"{partition}:{broker}" for broker in flow.destinations]
    changes: Changes = {
        ConfigResource("broker", str(broker)): [AlterConfig(key, str(rate)) for key in RATES]
        for broker in sorted(brokers)
    }
    for topic in leaders:
        changes[ConfigResource("topic", topic)] = [
            AlterConfig(LEADER_REPLICAS, ",".join(leaders[topic])),
            AlterConfig(FOLLOWER_REPLICAS, ",".join(followers[topic])),
        ]
    return changes


async def set_throttles(admin: Admin, flows: Mapping[TopicPartition, Flow], rate: int) -> None:
    """Set throttles, before the moves begin."""
    changes = throttles(flows, rate)
    if changes:
        await admin.alter_configs(changes)


async def clear_when_still(admin: Admin, topics: Iterable[str] | None = None) -> list[str]:
    """Remove all throttles of brokers and of ``topics`` (None: all) if no replica is moving. Return
    the names of the resources from which they were removed.
    """
    if await admin.list_partition_reassignments():
        return []
    brokers = [broker.broker_id for broker in (await admin.describe_cluster()).brokers]
    known = set(await admin.list_topics(internal=True))
    wanted = known if topics is None else known.intersection(topics)
    resources = [ConfigResource("broker", str(one)) for one in brokers]
    resources += [ConfigResource("topic", one) for one in sorted(wanted)]
    changes: Changes = {}
    for resource, entries in (await admin.describe_configs(resources)).items():
        keys = RATES if resource.kind == "broker" else REPLICAS
        found = [
            key
            for key in keys
            if key in entries
            and entries[key].source == _SET_HERE[resource.kind]
            and entries[key].value != ALL_REPLICAS  # set permanently by a user
        ]
        if found:
            changes[resource] = [AlterConfig(key, operation="delete") for key in found]
    if changes:
        await admin.alter_configs(changes)
    return [f"{resource.kind} {resource.name}" for resource in changes]
