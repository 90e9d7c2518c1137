"""The throttle of moves (KIP-73), set and removed as Kafka's own tool does."""

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
"""Where a value comes from that is an override of the resource itself."""

Changes = dict[ConfigResource, list[AlterConfig]]


class Flow(NamedTuple):
    """From which brokers to which one partition is copied."""

    sources: tuple[int, ...]
    destinations: tuple[int, ...]


def throttles(flows: Mapping[TopicPartition, Flow], rate: int) -> Changes:
    """What to set: the rate on every broker concerned, and on topics, which replicas it is for. Any
    source may lead during the move, so that all are named.
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
    """Before the moves begin, so that nothing is copied faster."""
    changes = throttles(flows, rate)
    if changes:
        await admin.alter_configs(changes)


async def clear_when_still(admin: Admin, topics: Iterable[str] | None = None) -> list[str]:
    """Remove all throttles once nothing moves in the cluster any more; from these topics, or all.
    Says from what they were removed.
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
            and entries[key].value != ALL_REPLICAS  # somebody's own, for good
        ]
        if found:
            changes[resource] = [AlterConfig(key, operation="delete") for key in found]
    if changes:
        await admin.alter_configs(changes)
    return [f"{resource.kind} {resource.name}" for resource in changes]
