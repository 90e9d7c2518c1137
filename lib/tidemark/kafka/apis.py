"""Kafka APIs that Tidemark supports, and their versions.

``advertised_min`` is the minimum in responses to ApiVersions, ``served_min`` the minimum that is
decoded. They differ only for Produce, whose advertised minimum must be 0, or librdkafka before
2.11.1 silently drops compression (KAFKA-18659). ``max`` is inclusive. ``flexible_from`` is the
first version with compact encoding and tagged fields (KIP-482), None if no version has them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from types import MappingProxyType
from typing import Final


class ApiKey(IntEnum):
    """Kafka's API keys, without those of KRaft, streams and internal APIs."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    GET_TELEMETRY_SUBSCRIPTIONS = 71
    PUSH_TELEMETRY = 72
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92


@dataclass(frozen=True, slots=True)
class ApiVersionRange:
    """Versions of one API; bounds inclusive."""

    advertised_min: int
    served_min: int
    max: int
    flexible_from: int | None

    def serves(self, version: int) -> bool:
        """True if a request of this version can be decoded."""
        return self.served_min <= version <= self.max

    def is_flexible(self, version: int) -> bool:
        """True if this version has compact encoding and tagged fields."""
        return self.flexible_from is not None and version >= self.flexible_from


def _versions(first: int, last: int, flexible_from: int | None) -> ApiVersionRange:
    return ApiVersionRange(first, first, last, flexible_from)


APIS: Final[Mapping[ApiKey, ApiVersionRange]] = MappingProxyType(
    {
        ApiKey.PRODUCE: ApiVersionRange(0, 3, 13, 9),
        ApiKey.FETCH: _versions(4, 18, 12),
        ApiKey.LIST_OFFSETS: _versions(1, 11, 6),
        ApiKey.METADATA: _versions(0, 13, 9),
        ApiKey.OFFSET_COMMIT: _versions(2, 10, 8),
        ApiKey.OFFSET_FETCH: _versions(1, 10, 6),
        ApiKey.FIND_COORDINATOR: _versions(0, 6, 3),
        ApiKey.JOIN_GROUP: _versions(0, 9, 6),
        ApiKey.HEARTBEAT: _versions(0, 4, 4),
        ApiKey.LEAVE_GROUP: _versions(0, 5, 4),
        ApiKey.SYNC_GROUP: _versions(0, 5, 4),
        ApiKey.DESCRIBE_GROUPS: _versions(0, 6, 5),
        ApiKey.LIST_GROUPS: _versions(0, 5, 3),
        ApiKey.SASL_HANDSHAKE: _versions(0, 1, None),
        ApiKey.API_VERSIONS: _versions(0, 4, 3),
        ApiKey.CREATE_TOPICS: _versions(2, 7, 5),
        ApiKey.DELETE_TOPICS: _versions(1, 6, 4),
        ApiKey.DELETE_RECORDS: _versions(0, 2, 2),
        ApiKey.INIT_PRODUCER_ID: _versions(0, 5, 2),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: _versions(2, 4, 4),
        ApiKey.ADD_PARTITIONS_TO_TXN: _versions(0, 5, 3),
        ApiKey.ADD_OFFSETS_TO_TXN: _versions(0, 4, 3),
        ApiKey.END_TXN: _versions(0, 5, 3),
        ApiKey.WRITE_TXN_MARKERS: _versions(1, 2, 1),
        ApiKey.TXN_OFFSET_COMMIT: _versions(0, 5, 3),
        ApiKey.DESCRIBE_ACLS: _versions(1, 3, 2),
        ApiKey.CREATE_ACLS: _versions(1, 3, 2),
        ApiKey.DELETE_ACLS: _versions(1, 3, 2),
        ApiKey.DESCRIBE_CONFIGS: _versions(1, 4, 4),
        ApiKey.ALTER_CONFIGS: _versions(0, 2, 2),
        ApiKey.ALTER_REPLICA_LOG_DIRS: _versions(1, 2, 2),
        ApiKey.DESCRIBE_LOG_DIRS: _versions(1, 5, 2),
        ApiKey.SASL_AUTHENTICATE: _versions(0, 2, 2),
        ApiKey.CREATE_PARTITIONS: _versions(0, 3, 2),
        ApiKey.DELETE_GROUPS: _versions(0, 2, 2),
        ApiKey.ELECT_LEADERS: _versions(0, 2, 2),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: _versions(0, 1, 1),
        ApiKey.ALTER_PARTITION_REASSIGNMENTS: _versions(0, 1, 0),
        ApiKey.LIST_PARTITION_REASSIGNMENTS: _versions(0, 0, 0),
        ApiKey.OFFSET_DELETE: _versions(0, 0, None),
        ApiKey.DESCRIBE_CLIENT_QUOTAS: _versions(0, 1, 1),
        ApiKey.ALTER_CLIENT_QUOTAS: _versions(0, 1, 1),
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _versions(0, 0, 0),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _versions(0, 0, 0),
        ApiKey.DESCRIBE_QUORUM: _versions(0, 2, 0),
        ApiKey.UPDATE_FEATURES: _versions(0, 2, 0),
        ApiKey.DESCRIBE_CLUSTER: _versions(0, 2, 0),
        ApiKey.DESCRIBE_PRODUCERS: _versions(0, 0, 0),
        ApiKey.UNREGISTER_BROKER: _versions(0, 0, 0),
        ApiKey.DESCRIBE_TRANSACTIONS: _versions(0, 0, 0),
        ApiKey.LIST_TRANSACTIONS: _versions(0, 2, 0),
        ApiKey.CONSUMER_GROUP_HEARTBEAT: _versions(0, 1, 0),
        ApiKey.CONSUMER_GROUP_DESCRIBE: _versions(0, 1, 0),
        ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: _versions(0, 0, 0),
        ApiKey.PUSH_TELEMETRY: _versions(0, 0, 0),
        ApiKey.LIST_CONFIG_RESOURCES: _versions(0, 1, 0),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: _versions(0, 0, 0),
        ApiKey.SHARE_GROUP_HEARTBEAT: _versions(1, 1, 1),
        ApiKey.SHARE_GROUP_DESCRIBE: _versions(1, 1, 1),
        ApiKey.SHARE_FETCH: _versions(1, 2, 1),
        ApiKey.SHARE_ACKNOWLEDGE: _versions(1, 2, 1),
        ApiKey.INITIALIZE_SHARE_GROUP_STATE: _versions(0, 0, 0),
        ApiKey.READ_SHARE_GROUP_STATE: _versions(0, 0, 0),
        ApiKey.WRITE_SHARE_GROUP_STATE: _versions(0, 1, 0),
        ApiKey.DELETE_SHARE_GROUP_STATE: _versions(0, 0, 0),
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _versions(0, 1, 0),
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: _versions(0, 1, 0),
        ApiKey.ALTER_SHARE_GROUP_OFFSETS: _versions(0, 0, 0),
        ApiKey.DELETE_SHARE_GROUP_OFFSETS: _versions(0, 0, 0),
    }
)
# The APIs of share-group state are only for the internal listener, and never advertised to clients.
INTERNAL_APIS: Final = frozenset(
    {
        ApiKey.INITIALIZE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
    }
)
assert len(APIS) == len(ApiKey)

_BY_NUMBER: Final[Mapping[int, ApiVersionRange]] = {int(key): value for key, value in APIS.items()}


def is_served(api_key: int, version: int) -> bool:
    """True if this API and version can be decoded; never raises."""
    versions = _BY_NUMBER.get(api_key)
    return versions is not None and versions.serves(version)


def is_flexible(api_key: int, version: int) -> bool:
    """True if this version has compact encoding; False for an unknown API."""
    versions = _BY_NUMBER.get(api_key)
    return versions is not None and versions.is_flexible(version)
