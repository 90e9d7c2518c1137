"""Paths of all znodes below the chroot, and the envelope of their JSON.

/controller                          ephemeral: the active controller and its gRPC endpoint
/controller_epoch                    raised at every election; every controller write checks it
/cluster                             cluster id, finalized features
/constants                           settings that are the same in every process: lease.ms
/brokers/live/<id>-<incarnation>     ephemeral: this incarnation of this broker has a session
/brokers/ended/<id>-<incarnation>    this process has ended, as its supervisor saw
/brokers/registered/<id>             the broker's registration
/topics/<name>                       topic id, assignment, configs: the topic exists with the znode
/partitions/<topic id>/<number>      leader, ISR and epochs
/configs/brokers/<id or "default">   dynamic configuration
/acls/<digest>                       a pattern of resources and its access control list
/configs/groups/<group>              dynamic configuration
/users/<name>                        SCRAM credentials of a user
/quotas/<digest>                     an entity of client quotas and its values
/login_secret                        secret from which the answers to unknown users are made
/producer_ids                        first producer id not allocated yet
/coordinators/<kind>/<id>-<incarnation>  ephemeral: this coordinator replica has a session
/shards/<kind>                       registered coordinators and the owner of each shard
/operations/<id>                     a long action of the administration: state and progress
/operations/<id>/moves               the replicas that it moves, compressed
/idempotency/<day>/<digest>          a request with an Idempotency-Key, and its answer
"""

import json
from collections.abc import Mapping
from hashlib import sha256
from typing import Any, Final, NamedTuple
from urllib.parse import quote, unquote

from tidemark.model.acls import ResourcePattern
from tidemark.model.ids import BrokerId, TopicId
from tidemark.model.metadata import COORDINATOR_KINDS
from tidemark.model.quotas import QuotaEntity
from tidemark.runtime.exit_codes import ExitCode

CHROOT_DEFAULT: Final = "/tidemark"

CONTROLLER: Final = "/controller"
CONTROLLER_EPOCH: Final = "/controller_epoch"
CLUSTER: Final = "/cluster"
CONSTANTS: Final = "/constants"
LIVE_BROKERS: Final = "/brokers/live"
ENDED_BROKERS: Final = "/brokers/ended"
REGISTERED_BROKERS: Final = "/brokers/registered"
TOPICS: Final = "/topics"
PARTITIONS: Final = "/partitions"
BROKER_CONFIGS: Final = "/configs/brokers"
GROUP_CONFIGS: Final = "/configs/groups"
CLIENT_METRICS: Final = "/configs/client-metrics"
ACLS: Final = "/acls"
USERS: Final = "/users"
QUOTAS: Final = "/quotas"
LOGIN_SECRET: Final = "/login_secret"
PRODUCER_IDS: Final = "/producer_ids"
COORDINATORS: Final = "/coordinators"
SHARDS: Final = "/shards"
OPERATIONS: Final = "/operations"
IDEMPOTENCY: Final = "/idempotency"

PERSISTENT_PARENTS: Final = (
    LIVE_BROKERS,
    ENDED_BROKERS,
    REGISTERED_BROKERS,
    TOPICS,
    PARTITIONS,
    BROKER_CONFIGS,
    GROUP_CONFIGS,
    CLIENT_METRICS,
    ACLS,
    USERS,
    QUOTAS,
    *(f"{COORDINATORS}/{kind}" for kind in COORDINATOR_KINDS),
    SHARDS,
)

FORMAT: Final = 1
"""Znode format that this release writes, and the newest that it reads."""

HOW_TO_MEND: Final = "see docs/operating/recover.md, a znode cannot be read"

_CLUSTER_WIDE: Final = "default"


class UnknownZnodeFormatError(ValueError):
    """A znode that this release cannot read: a newer release or another program wrote it."""

    exit_code = ExitCode.DATA


class LiveBroker(NamedTuple):
    """One incarnation of one broker that has, or had, a ZooKeeper session."""

    broker_id: BrokerId
    incarnation_id: bytes

    @property
    def path(self) -> str:
        """Path of its ephemeral znode."""
        return f"{LIVE_BROKERS}/{self.broker_id}-{self.incarnation_id.hex()}"

    @property
    def ended_path(self) -> str:
        """Path of the record that this process has ended."""
        return f"{ENDED_BROKERS}/{self.broker_id}-{self.incarnation_id.hex()}"

    @classmethod
    def parse(cls, name: str, parent: str = LIVE_BROKERS) -> "LiveBroker":
        """Read a child's name. Raises UnknownZnodeFormatError."""
        broker_id, incarnation_id = _parse_live(parent, name)
        return cls(BrokerId(broker_id), incarnation_id)


class LiveCoordinator(NamedTuple):
    """One incarnation of one coordinator replica that has a ZooKeeper session."""

    kind: str
    coordinator_id: int
    incarnation_id: bytes

    @property
    def path(self) -> str:
        """Path of its ephemeral znode."""
        parent = live_coordinators(self.kind)
        return f"{parent}/{self.coordinator_id}-{self.incarnation_id.hex()}"

    @classmethod
    def parse(cls, kind: str, name: str) -> "LiveCoordinator":
        """Read a child's name. Raises UnknownZnodeFormatError."""
        return cls(kind, *_parse_live(live_coordinators(kind), name))


LiveZnode = LiveBroker | LiveCoordinator


def _parse_live(parent: str, name: str) -> tuple[int, bytes]:
    """Read ``<id>-<incarnation in hex>``. Raises UnknownZnodeFormatError."""
    number, _, incarnation = name.partition("-")
    try:
        found = int(number), bytes.fromhex(incarnation)
    except ValueError:
        found = 0, b""
    if not found[1]:
        raise UnknownZnodeFormatError(f"{parent}/{name}: expected <id>-<hex>")
    return found


def live_coordinators(kind: str) -> str:
    """Return the parent of the ephemeral znodes of one kind of coordinators."""
    return f"{COORDINATORS}/{kind}"


def shards(kind: str) -> str:
    """Return the znode of one kind's registered coordinators and shard owners."""
    return f"{SHARDS}/{kind}"


def registered_broker(broker_id: BrokerId) -> str:
    """Return the znode of a broker's registration."""
    return f"{REGISTERED_BROKERS}/{broker_id}"


def operation(operation_id: str) -> str:
    """Return the znode of a long action. Characters that a znode's name may not have are escaped as
    in URLs.
    """
    return f"{OPERATIONS}/{quote(operation_id, safe='').replace('.', '%2E')}"


def topic(name: str) -> str:
    """Return the znode of a topic's assignment and configuration."""
    return f"{TOPICS}/{name}"


def partitions_of(topic_id: TopicId) -> str:
    """Return the parent of a topic's partitions."""
    return f"{PARTITIONS}/{topic_id.hex()}"


def partition(topic_id: TopicId, number: int) -> str:
    """Return the znode of one partition's leader, ISR and epochs."""
    return f"{PARTITIONS}/{topic_id.hex()}/{number}"


def broker_configs(broker: str) -> str:
    """Return the znode of a broker's dynamic configuration; '' is the cluster-wide default."""
    return f"{BROKER_CONFIGS}/{broker or _CLUSTER_WIDE}"


def broker_of_configs(name: str) -> str:
    """Return the broker of a child's name: the inverse of ``broker_configs``."""
    return "" if name == _CLUSTER_WIDE else name


def group_configs(group: str) -> str:
    """Return the znode of a group's dynamic configuration. Characters that a znode's name may not
    have are escaped as in URLs.
    """
    return f"{GROUP_CONFIGS}/{quote(group, safe='').replace('.', '%2E')}"


def group_of_configs(name: str) -> str:
    """Return the group of a child's name: the inverse of ``group_configs``."""
    return unquote(name)


def client_metrics(subscription: str) -> str:
    """Return the znode of a subscription to metrics of clients, with the name escaped as a
    group's.
    """
    return f"{CLIENT_METRICS}/{quote(subscription, safe='').replace('.', '%2E')}"


def subscription_of_client_metrics(name: str) -> str:
    """Return the subscription of a child's name: the inverse of ``client_metrics``."""
    return unquote(name)


def acls(pattern: ResourcePattern) -> str:
    """Return the znode of a pattern's access control list. The name is a digest, since resources
    may have any name, of any length.
    """
    named = f"{pattern.resource_type:d} {pattern.pattern_type:d} {pattern.name}"
    return f"{ACLS}/{sha256(named.encode()).hexdigest()}"


def user(name: str) -> str:
    """Return the znode of a user's credentials, with the name escaped as a group's."""
    return f"{USERS}/{quote(name, safe='').replace('.', '%2E')}"


def user_of(name: str) -> str:
    """Return the user of a child's name: the inverse of ``user``."""
    return unquote(name)


def quotas(entity: QuotaEntity) -> str:
    """Return the znode of an entity's quotas. The name is a digest, as that of a pattern's list."""
    named = json.dumps(entity)
    return f"{QUOTAS}/{sha256(named.encode()).hexdigest()}"


def with_chroot(connect: str) -> str:
    """Return a connect string with the default chroot if it names none."""
    return connect if "/" in connect else connect + CHROOT_DEFAULT


def encode(content: Mapping[str, object]) -> bytes:
    """Return a znode's bytes: compact JSON that begins with the format."""
    return json.dumps({"format": FORMAT, **content}, separators=(",", ":")).encode()


def decode(path: str, data: bytes) -> dict[str, Any]:
    """Return a znode's content. Raises UnknownZnodeFormatError with the path."""
    try:
        content = json.loads(data)
    except ValueError:
        raise UnknownZnodeFormatError(f"znode {path} does not hold JSON; {HOW_TO_MEND}") from None
    found = content.get("format") if isinstance(content, dict) else None
    if not isinstance(found, int) or not 1 <= found <= FORMAT:
        raise UnknownZnodeFormatError(
            f"znode {path} has format {found}; this release reads formats up to {FORMAT}:"
            " run the release that wrote it, or a newer one"
        )
    assert isinstance(content, dict)
    return content
