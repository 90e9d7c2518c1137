"""What each Kafka API asks for: a request, and the permissions without which it is refused."""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from e2e.kafka_wire import Wire
from tidemark.kafka import long_tail
from tidemark.kafka.apis import APIS, ApiKey
from tidemark.model.authorization import (
    CLUSTER,
    Operation,
    Resource,
    ResourceType,
    group_resource,
    topic_resource,
    transactional_id_resource,
)
from tidemark.model.errors import ErrorCode

GROUP: Final = "readers"
TRANSACTION: Final = "payments"
TOPIC: Final = "orders"
DOOMED: Final = "doomed"
BEFORE_LOGIN: Final = frozenset(
    {ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE}
)
REFUSALS: Final = {
    ResourceType.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ResourceType.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ResourceType.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}


class Need(NamedTuple):
    """One permission."""

    operation: Operation
    resource: Resource

    @property
    def refusal(self) -> ErrorCode:
        """Error without it."""
        return REFUSALS[self.resource.resource_type]


class Place(NamedTuple):
    """Names in a request."""

    topic: str
    topic_id: bytes


class Row(NamedTuple):
    """One kind of request of one API."""

    api: ApiKey
    needs: tuple[Need, ...]
    ask: Callable[[Wire, Place], Any]
    instead: tuple[Need, ...] = ()
    """Each of them suffices, too."""
    shows: Callable[[Any], bool] | None = None
    """Of an answer that is filtered and not refused: whether it has what the caller may see."""
    by_name: bool = True
    """False if the topic is in the request by its id, or not at all."""
    topic: str = TOPIC


def topic(operation: Operation, name: str = TOPIC) -> Need:
    return Need(operation, topic_resource(name))


def group(operation: Operation, name: str = GROUP) -> Need:
    return Need(operation, group_resource(name))


def cluster(operation: Operation) -> Need:
    return Need(operation, CLUSTER)


def transaction(operation: Operation) -> Need:
    return Need(operation, transactional_id_resource(TRANSACTION))


def tail(
    api: ApiKey,
    fields: Callable[[Place], Mapping[str, object]] | Mapping[str, object],
    *needs: Need,
    version: int | None = None,
    **more: Any,
) -> Row:
    """A row of an API whose codec comes from a table."""
    chosen = APIS[api].max if version is None else version

    def ask(wire: Wire, place: Place) -> Any:
        values = fields(place) if callable(fields) else fields
        body = long_tail.write_request(api, chosen, values)
        return long_tail.read_response(api, chosen, wire.ask(api, chosen, body))

    return Row(api, needs, ask, **more)


def _partitions(**fields: object) -> Callable[[Place], dict[str, object]]:
    """Fields of a request with one topic by its name, and with its partition 0."""
    top = {key.removeprefix("top_"): value for key, value in fields.items() if key[:4] == "top_"}
    own = {key: value for key, value in fields.items() if key[:4] != "top_"}

    def made(place: Place) -> dict[str, object]:
        return {**top, "topics": [{"name": place.topic, "partitions": [own]}]}

    return made


def _configs(kind: int, name: str | None, **asked: object) -> Callable[[Place], dict[str, object]]:
    def made(place: Place) -> dict[str, object]:
        named = place.topic if name is None else name
        return {"resources": [{"resource_type": kind, "resource_name": named, **asked}]}

    return made


Op = Operation
K = ApiKey
_READ_GROUP, _DESCRIBE_GROUP = group(Op.READ), group(Op.DESCRIBE)
_READ_TOPIC, _DESCRIBE_TOPIC = topic(Op.READ), topic(Op.DESCRIBE)
_WRITE_TXN = transaction(Op.WRITE)
_TXN = {"transactional_id": TRANSACTION, "producer_id": 7, "producer_epoch": 0}
_FILTER = {
    "resource_type_filter": 1, "resource_name_filter": None, "pattern_type_filter": 1,
    "principal_filter": "User:nobody", "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip
_MARKER = {
    "producer_id": 7, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0,
    "topics": [{"name": "nowhere", "partition_indexes": [0]}],
}  # fmt: skip
_COMMIT = {"partition_index": 0, "committed_offset": 0, "committed_metadata": None}
_MEMBER = {"group_id": GROUP, "generation_id": 0, "member_id": "m"}


def topics_of(answer: Any) -> set[str]:
    """Names of the topics that an answer describes."""
    return {getattr(one, "topic", None) or one.name for one in answer.topics}


def _by_id(place: Place) -> list[dict[str, object]]:
    return [{"topic_id": place.topic_id, "partitions": [{"partition_index": 0}]}]


_TOPICS = (
    Row(K.PRODUCE, (topic(Op.WRITE),), lambda wire, at: wire.produce(at.topic, None)),
    Row(K.FETCH, (_READ_TOPIC,), lambda wire, at: wire.fetch((at.topic, 0, 0))),
    Row(K.LIST_OFFSETS, (_DESCRIBE_TOPIC,), lambda wire, at: wire.offset(at.topic, 0, -1)),
    Row(K.METADATA, (_DESCRIBE_TOPIC,), lambda wire, at: wire.metadata(at.topic)),
    Row(
        K.METADATA,
        (_DESCRIBE_TOPIC,),
        lambda wire, at: wire.metadata(),
        shows=lambda answer: TOPIC in topics_of(answer),
    ),
    tail(
        K.DESCRIBE_TOPIC_PARTITIONS,
        lambda at: {"topics": [{"name": at.topic}], "cursor": None},
        _DESCRIBE_TOPIC,
    ),
    tail(
        K.DESCRIBE_TOPIC_PARTITIONS,
        {"topics": [], "cursor": None},
        _DESCRIBE_TOPIC,
        shows=lambda answer: TOPIC in topics_of(answer),
    ),
    tail(
        K.OFFSET_FOR_LEADER_EPOCH,
        lambda at: {
            "topics": [{"topic": at.topic, "partitions": [{"partition": 0, "leader_epoch": 0}]}]
        },
        _DESCRIBE_TOPIC,
        instead=(cluster(Op.CLUSTER_ACTION),),
    ),
    tail(
        K.CREATE_TOPICS,
        lambda at: {
            "topics": [
                {
                    "name": at.topic,
                    "num_partitions": 1,
                    "replication_factor": 1,
                    "assignments": [],
                    "configs": [],
                }
            ],
            "validate_only": True,
        },
        topic(Op.CREATE),
        instead=(cluster(Op.CREATE),),
    ),
    tail(
        K.DELETE_TOPICS,
        lambda at: {"topics": [{"name": at.topic, "topic_id": bytes(16)}], "timeout": 30_000},
        topic(Op.DELETE, DOOMED),
        topic=DOOMED,
    ),
    tail(
        K.DELETE_RECORDS,
        _partitions(top_timeout=30_000, partition_index=0, offset=0),
        topic(Op.DELETE),
    ),
    tail(
        K.CREATE_PARTITIONS,
        lambda at: {
            "topics": [{"name": at.topic, "count": 1, "assignments": None}],
            "timeout": 30_000,
            "validate_only": True,
        },
        topic(Op.ALTER),
    ),
    tail(
        K.DESCRIBE_PRODUCERS,
        lambda at: {"topics": [{"name": at.topic, "partition_indexes": [0]}]},
        _READ_TOPIC,
    ),
)

_GROUPS = (
    tail(
        K.OFFSET_COMMIT,
        _partitions(top_group_id=GROUP, top_member_id="", **_COMMIT),
        _READ_GROUP,
        _READ_TOPIC,
        version=9,
    ),
    tail(
        K.OFFSET_FETCH,
        lambda at: {
            "groups": [
                {"group_id": GROUP, "topics": [{"name": at.topic, "partition_indexes": [0]}]}
            ]
        },
        _DESCRIBE_GROUP,
        _DESCRIBE_TOPIC,
        version=9,
    ),
    tail(
        K.FIND_COORDINATOR,
        {"key_type": 0, "coordinator_keys": [GROUP]},
        _DESCRIBE_GROUP,
    ),
    tail(
        K.FIND_COORDINATOR,
        {"key_type": 1, "coordinator_keys": [TRANSACTION]},
        transaction(Op.DESCRIBE),
    ),
    tail(
        K.JOIN_GROUP,
        {
            "group_id": GROUP,
            "session_timeout": 10_000,
            "member_id": "",
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        },
        _READ_GROUP,
    ),
    tail(K.HEARTBEAT, _MEMBER, _READ_GROUP),
    tail(K.LEAVE_GROUP, {"group_id": GROUP, "members": [{"member_id": "m"}]}, _READ_GROUP),
    tail(K.SYNC_GROUP, {**_MEMBER, "assignments": []}, _READ_GROUP),
    tail(K.DESCRIBE_GROUPS, {"groups": [GROUP]}, _DESCRIBE_GROUP),
    tail(
        K.LIST_GROUPS,
        {"states_filter": [], "types_filter": []},
        _DESCRIBE_GROUP,
        instead=(cluster(Op.DESCRIBE),),
        shows=lambda answer: GROUP in {one.group_id for one in answer.groups},
    ),
    tail(K.DELETE_GROUPS, {"groups_names": [DOOMED]}, group(Op.DELETE, DOOMED)),
    tail(
        K.OFFSET_DELETE,
        # A partition without an offset: the group, which other rows list, would end with its last.
        _partitions(top_group_id=GROUP, partition_index=1),
        group(Op.DELETE),
        _READ_TOPIC,
    ),
    tail(
        K.CONSUMER_GROUP_HEARTBEAT,
        lambda at: {
            "group_id": GROUP,
            "member_id": "m",
            "member_epoch": 5,
            "subscribed_topic_names": [at.topic],
            "topic_partitions": None,
        },
        _READ_GROUP,
        _DESCRIBE_TOPIC,
    ),
    tail(K.CONSUMER_GROUP_DESCRIBE, {"group_ids": [GROUP]}, _DESCRIBE_GROUP),
)

_TRANSACTIONS = (
    tail(
        K.INIT_PRODUCER_ID,
        {"transactional_id": TRANSACTION, "transaction_timeout": 10_000},
        _WRITE_TXN,
    ),
    tail(
        K.INIT_PRODUCER_ID,
        {"transactional_id": None, "transaction_timeout": 10_000},
        cluster(Op.IDEMPOTENT_WRITE),
        instead=(topic(Op.WRITE),),
    ),
    tail(
        K.ADD_PARTITIONS_TO_TXN,
        lambda at: {
            "v3_and_below_transactional_id": TRANSACTION,
            "v3_and_below_producer_id": 7,
            "v3_and_below_producer_epoch": 0,
            "v3_and_below_topics": [{"name": at.topic, "partitions": [0]}],
        },
        _WRITE_TXN,
        topic(Op.WRITE),
        version=3,
    ),
    tail(
        K.ADD_PARTITIONS_TO_TXN,
        {"transactions": [{**_TXN, "verify_only": True, "topics": []}]},
        cluster(Op.CLUSTER_ACTION),
    ),
    tail(K.ADD_OFFSETS_TO_TXN, {**_TXN, "group_id": GROUP}, _WRITE_TXN, _READ_GROUP),
    tail(K.END_TXN, {**_TXN, "committed": True}, _WRITE_TXN),
    tail(
        K.TXN_OFFSET_COMMIT,
        _partitions(
            **{f"top_{name}": value for name, value in _TXN.items()},
            top_group_id=GROUP,
            top_member_id="",
            **_COMMIT,
        ),
        _WRITE_TXN,
        _READ_GROUP,
        _READ_TOPIC,
    ),
    tail(
        K.WRITE_TXN_MARKERS,
        {"markers": [_MARKER]},
        cluster(Op.CLUSTER_ACTION),
        instead=(cluster(Op.ALTER),),
    ),
    tail(K.DESCRIBE_TRANSACTIONS, {"transactional_ids": [TRANSACTION]}, transaction(Op.DESCRIBE)),
    tail(
        K.LIST_TRANSACTIONS,
        {"state_filters": [], "producer_id_filters": []},
        transaction(Op.DESCRIBE),
        shows=lambda answer: (
            TRANSACTION in {one.transactional_id for one in answer.transaction_states}
        ),
    ),
)

_CLUSTER = (
    tail(K.DESCRIBE_ACLS, _FILTER, cluster(Op.DESCRIBE)),
    tail(
        K.CREATE_ACLS,
        {
            "creations": [
                {
                    "resource_type": 99,
                    "resource_name": "x",
                    "principal": "User:nobody",
                    "host": "*",
                    "operation": 3,
                    "permission_type": 3,
                }
            ]
        },
        cluster(Op.ALTER),
    ),
    tail(K.DELETE_ACLS, {"filters": [_FILTER]}, cluster(Op.ALTER)),
    tail(K.DESCRIBE_USER_SCRAM_CREDENTIALS, {"users": None}, cluster(Op.DESCRIBE)),
    tail(
        K.ALTER_USER_SCRAM_CREDENTIALS,
        {"deletions": [{"name": "absent", "mechanism": 1}], "upsertions": []},
        cluster(Op.ALTER),
    ),
    # No broker has this id: with the permission nothing is unregistered.
    tail(K.UNREGISTER_BROKER, {"broker_id": 9_999}, cluster(Op.ALTER)),
    tail(K.UPDATE_FEATURES, {"feature_updates": []}, cluster(Op.ALTER)),
    tail(K.DESCRIBE_CLIENT_QUOTAS, {"components": []}, cluster(Op.DESCRIBE_CONFIGS)),
    tail(
        K.ALTER_CLIENT_QUOTAS,
        {
            "entries": [
                {
                    "entity": [{"entity_type": "user", "entity_name": "nobody"}],
                    "ops": [{"key": "producer_byte_rate", "value": 1.0, "remove": True}],
                }
            ],
            "validate_only": True,
        },
        cluster(Op.ALTER_CONFIGS),
    ),
    tail(
        K.DESCRIBE_CONFIGS, _configs(2, None, configuration_keys=None), topic(Op.DESCRIBE_CONFIGS)
    ),
    tail(
        K.DESCRIBE_CONFIGS, _configs(4, "", configuration_keys=None), cluster(Op.DESCRIBE_CONFIGS)
    ),
    tail(
        K.DESCRIBE_CONFIGS, _configs(32, GROUP, configuration_keys=None), group(Op.DESCRIBE_CONFIGS)
    ),
    tail(K.ALTER_CONFIGS, _configs(2, None, configs=[]), topic(Op.ALTER_CONFIGS)),
    tail(K.ALTER_CONFIGS, _configs(4, "", configs=[]), cluster(Op.ALTER_CONFIGS)),
    tail(K.INCREMENTAL_ALTER_CONFIGS, _configs(2, None, configs=[]), topic(Op.ALTER_CONFIGS)),
    tail(K.INCREMENTAL_ALTER_CONFIGS, _configs(4, "", configs=[]), cluster(Op.ALTER_CONFIGS)),
    tail(K.INCREMENTAL_ALTER_CONFIGS, _configs(32, GROUP, configs=[]), group(Op.ALTER_CONFIGS)),
    tail(
        K.DESCRIBE_CONFIGS,
        _configs(16, "subscription", configuration_keys=None),
        cluster(Op.DESCRIBE_CONFIGS),
    ),
    tail(
        K.INCREMENTAL_ALTER_CONFIGS,
        _configs(16, "subscription", configs=[]),
        cluster(Op.ALTER_CONFIGS),
    ),
    tail(K.LIST_CONFIG_RESOURCES, {"resource_types": []}, cluster(Op.DESCRIBE_CONFIGS)),
    tail(K.DESCRIBE_LOG_DIRS, {"topics": []}, cluster(Op.DESCRIBE)),
    tail(
        K.ALTER_REPLICA_LOG_DIRS,
        {"dirs": [{"path": "/nowhere", "topics": [{"name": TOPIC, "partitions": [0]}]}]},
        cluster(Op.ALTER),
    ),
    tail(K.DESCRIBE_QUORUM, {"topics": []}, cluster(Op.DESCRIBE)),
    tail(
        K.ELECT_LEADERS,
        {"topic_partitions": [{"topic": TOPIC, "partitions": [0]}]},
        cluster(Op.ALTER),
    ),
    tail(
        K.ALTER_PARTITION_REASSIGNMENTS,
        {"topics": [{"name": TOPIC, "partitions": [{"partition_index": 0, "replicas": None}]}]},
        cluster(Op.ALTER),
    ),
    tail(K.LIST_PARTITION_REASSIGNMENTS, {"topics": None}, cluster(Op.DESCRIBE)),
)

_SHARES = (
    tail(
        K.SHARE_GROUP_HEARTBEAT,
        lambda at: {
            "group_id": GROUP,
            "member_id": "m",
            "member_epoch": 5,
            "subscribed_topic_names": [at.topic],
        },
        _READ_GROUP,
        _DESCRIBE_TOPIC,
    ),
    tail(K.SHARE_GROUP_DESCRIBE, {"group_ids": [GROUP]}, _DESCRIBE_GROUP),
    tail(
        K.SHARE_FETCH,
        lambda at: {
            "group_id": GROUP,
            "member_id": "AAAAAAAAAAAAAAAAAAAAAQ",
            "share_session_epoch": 0,
            "max_records": 1,
            "batch_size": 1,
            "topics": _by_id(at),
        },
        _READ_GROUP,
        _READ_TOPIC,
        by_name=False,
    ),
    tail(
        K.SHARE_ACKNOWLEDGE,
        lambda at: {
            "group_id": GROUP,
            "member_id": "AAAAAAAAAAAAAAAAAAAAAQ",
            "share_session_epoch": 1,
            "topics": _by_id(at),
        },
        _READ_GROUP,
        by_name=False,
    ),
    tail(
        K.DESCRIBE_SHARE_GROUP_OFFSETS,
        lambda at: {
            "groups": [{"group_id": GROUP, "topics": [{"topic_name": at.topic, "partitions": [0]}]}]
        },
        _DESCRIBE_GROUP,
        _DESCRIBE_TOPIC,
    ),
    tail(
        K.ALTER_SHARE_GROUP_OFFSETS,
        lambda at: {
            "group_id": GROUP,
            "topics": [
                {
                    "topic_name": at.topic,
                    "partitions": [{"partition_index": 0, "start_offset": 0}],
                }
            ],
        },
        _READ_GROUP,
        _READ_TOPIC,
    ),
    tail(
        K.DELETE_SHARE_GROUP_OFFSETS,
        lambda at: {"group_id": GROUP, "topics": [{"topic_name": at.topic}]},
        group(Op.DELETE),
        _READ_TOPIC,
    ),
)

ROWS: Final = (
    *_TOPICS,
    *_GROUPS,
    *_TRANSACTIONS,
    *_CLUSTER,
    *_SHARES,
    tail(K.DESCRIBE_CLUSTER, {"include_cluster_authorized_operations": True}),
    # As in Kafka, any client may ask what to push, and push it.
    tail(K.GET_TELEMETRY_SUBSCRIPTIONS, {"client_instance_id": bytes(16)}),
    tail(K.PUSH_TELEMETRY, {"client_instance_id": bytes(range(16)), "metrics": b""}),
)
