"""Typed error responses to any served request, for failures outside its handler.

A top-level error code is set if the response has one. If errors belong to topics, partitions,
groups or resources, the request is read again, and each of these in it gets the error
(`_MIRRORS`), as in ``getErrorResponse`` of each of Kafka's requests.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from tidemark.kafka import api_versions, fetch, list_offsets, metadata, produce
from tidemark.kafka.apis import APIS, ApiKey, is_served
from tidemark.kafka.messages import read_request, write_response
from tidemark.kafka.primitives import MalformedRequestError
from tidemark.kafka.schemas import load_schema

_UNSUPPORTED_VERSION: Final = 35
_THE_ELEMENT: Final = ""  # source: the request's element itself, a string or number


def error_response(
    api_key: int, version: int, body: memoryview | None, error_code: int
) -> bytes | None:
    """Return the body of a response with ``error_code``, or None if none can be built.

    After None close the connection. It is returned for an API or version that is not served (except
    ApiVersions, whose response is of version 0 then, as in KIP-511), and if the request has to be
    read but is missing or malformed.
    """
    if not is_served(api_key, version):
        if api_key != ApiKey.API_VERSIONS:
            return None
        return _api_versions_error(0, None, error_code)
    try:
        return _WRITERS.get(api_key, _long_tail_error(api_key))(version, body, error_code)
    except MalformedRequestError:
        return None


_Writer = Callable[[int, memoryview | None, int], bytes | None]


# -- hand-written messages


def _api_versions_error(version: int, _: memoryview | None, error_code: int) -> bytes:
    """Return an error with, for UNSUPPORTED_VERSION, the versions of ApiVersions itself, so that
    the client can repeat the request.
    """
    own = APIS[ApiKey.API_VERSIONS]
    rows = [api_versions.ApiVersion(ApiKey.API_VERSIONS, own.advertised_min, own.max)]
    answer = api_versions.ApiVersionsResponse(
        error_code, rows if error_code == _UNSUPPORTED_VERSION else []
    )
    return api_versions.write_api_versions_response(version, answer)


def _produce_error(version: int, body: memoryview | None, error_code: int) -> bytes | None:
    if body is None:
        return None
    request = produce.read_produce_request(body, version)
    topics = [
        (
            topic.topic,
            topic.topic_id,
            [produce.ProducePartitionResult(p.partition, error_code) for p in topic.partitions],
        )
        for topic in request.topics
    ]
    return produce.write_produce_response(version, topics)


def _fetch_error(version: int, body: memoryview | None, error_code: int) -> bytes | None:
    """Return an error: from version 13 only at the top level, in versions 7 to 12 there and in all
    partitions, before that in all partitions.
    """
    topics: list[fetch.FetchTopicResult] = []
    if version < 13:
        if body is None:
            return None
        request = fetch.read_fetch_request(body, version)
        topics = [
            (
                topic.topic,
                topic.topic_id,
                [
                    fetch.FetchPartitionResult(p.partition, error_code, high_watermark=-1)
                    for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    return b"".join(fetch.write_fetch_response_parts(version, error_code=error_code, topics=topics))


def _list_offsets_error(version: int, body: memoryview | None, error_code: int) -> bytes | None:
    if body is None:
        return None
    request = list_offsets.read_list_offsets_request(body, version)
    topics = [
        (
            topic.topic,
            [list_offsets.ListOffsetsResult(p.partition, error_code) for p in topic.partitions],
        )
        for topic in request.topics
    ]
    return list_offsets.write_list_offsets_response(version, topics)


def _metadata_error(version: int, body: memoryview | None, error_code: int) -> bytes | None:
    if body is None:
        return None
    request = metadata.read_metadata_request(body, version)
    topics = [
        metadata.MetadataTopic(
            error_code, query.topic, query.topic_id, is_internal=False, partitions=[]
        )
        for query in request.topics or ()
    ]
    return metadata.write_metadata_response(
        version, metadata.MetadataResponse([], None, -1, topics, error_code=error_code)
    )


_WRITERS: Final[Mapping[int, _Writer]] = MappingProxyType(
    {
        ApiKey.PRODUCE: _produce_error,
        ApiKey.FETCH: _fetch_error,
        ApiKey.LIST_OFFSETS: _list_offsets_error,
        ApiKey.METADATA: _metadata_error,
        ApiKey.API_VERSIONS: _api_versions_error,
    }
)


# -- the long tail


@dataclass(frozen=True, slots=True)
class _Mirror:
    """Rule that adds one row to response array ``to`` for each element of request array ``of``.

    ``keys`` maps response fields to request fields. ``inner`` goes one level deeper; without it the
    row holds the error, in field ``error``. ``constants`` are further fields of such rows in Kafka.
    ``through``: request array whose elements have the array ``of``, if not the request itself.
    """

    to: str
    of: str
    keys: Mapping[str, str]
    inner: "_Mirror | None" = None
    error: str = "error_code"
    constants: Mapping[str, object] = field(default_factory=dict)
    through: str = ""

    def rows(self, request: Any, error_code: int) -> list[dict[str, object]]:
        """Return the rows for all elements of the request's array."""
        holders = getattr(request, self.through) if self.through else (request,)
        return [
            self._row(element, error_code)
            for holder in holders
            for element in getattr(holder, self.of) or ()
        ]

    def _row(self, element: Any, error_code: int) -> dict[str, object]:
        row = dict(self.constants)
        for name, source in self.keys.items():
            row[name] = element if source == _THE_ELEMENT else getattr(element, source)
        if self.inner is None:
            row[self.error] = error_code
        else:
            row[self.inner.to] = self.inner.rows(element, error_code)
        return row


_NAME: Final = {"name": "name"}
_NAME_AND_ID: Final = {"name": "name", "topic_id": "topic_id"}
_RESOURCE: Final = {"resource_type": "resource_type", "resource_name": "resource_name"}
_INDEX: Final = {"partition_index": "partition_index"}
_INDEX_IS_ELEMENT: Final = {"partition_index": _THE_ELEMENT}
_GROUP_IS_ELEMENT: Final = {"group_id": _THE_ELEMENT}
_STATE_PARTITIONS: Final = _Mirror("partitions", "partitions", {"partition": "partition"})
_STATE: Final = (_Mirror("results", "topics", {"topic_id": "topic_id"}, _STATE_PARTITIONS),)
_COMMITTED: Final = (
    _Mirror("topics", "topics", _NAME_AND_ID, _Mirror("partitions", "partitions", _INDEX)),
)
_NO_COORDINATOR: Final = {"node_id": -1, "port": -1}

_MIRRORS: Final[Mapping[int, tuple[_Mirror, ...]]] = MappingProxyType(
    {
        ApiKey.OFFSET_COMMIT: _COMMITTED,
        ApiKey.OFFSET_FETCH: (
            _Mirror("groups", "groups", {"group_id": "group_id"}),
            _Mirror(
                "topics",
                "topics",
                _NAME,
                _Mirror(
                    "partitions",
                    "partition_indexes",
                    _INDEX_IS_ELEMENT,
                    constants={"committed_offset": -1},
                ),
            ),
        ),
        ApiKey.FIND_COORDINATOR: (
            _Mirror(
                "coordinators",
                "coordinator_keys",
                {"key": _THE_ELEMENT},
                constants=_NO_COORDINATOR,
            ),
        ),
        ApiKey.DESCRIBE_GROUPS: (_Mirror("groups", "groups", _GROUP_IS_ELEMENT),),
        ApiKey.CREATE_TOPICS: (_Mirror("topics", "topics", _NAME),),
        ApiKey.DELETE_TOPICS: (
            _Mirror("responses", "topics", _NAME_AND_ID),
            _Mirror("responses", "topic_names", {"name": _THE_ELEMENT}),
        ),
        ApiKey.DELETE_RECORDS: (
            _Mirror(
                "topics",
                "topics",
                _NAME,
                _Mirror("partitions", "partitions", _INDEX, constants={"low_watermark": -1}),
            ),
        ),
        ApiKey.OFFSET_FOR_LEADER_EPOCH: (
            _Mirror(
                "topics",
                "topics",
                {"topic": "topic"},
                _Mirror("partitions", "partitions", {"partition": "partition"}),
            ),
        ),
        ApiKey.ADD_PARTITIONS_TO_TXN: (
            _Mirror(
                "results_by_topic_v3_and_below",
                "v3_and_below_topics",
                _NAME,
                _Mirror(
                    "results_by_partition",
                    "partitions",
                    _INDEX_IS_ELEMENT,
                    error="partition_error_code",
                ),
            ),
        ),
        ApiKey.WRITE_TXN_MARKERS: (
            _Mirror(
                "markers",
                "markers",
                {"producer_id": "producer_id"},
                _Mirror(
                    "topics",
                    "topics",
                    _NAME,
                    _Mirror("partitions", "partition_indexes", _INDEX_IS_ELEMENT),
                ),
            ),
        ),
        ApiKey.TXN_OFFSET_COMMIT: (
            _Mirror("topics", "topics", _NAME, _Mirror("partitions", "partitions", _INDEX)),
        ),
        ApiKey.CREATE_ACLS: (_Mirror("results", "creations", {}),),
        ApiKey.DELETE_ACLS: (_Mirror("filter_results", "filters", {}),),
        ApiKey.DESCRIBE_CONFIGS: (_Mirror("results", "resources", _RESOURCE),),
        ApiKey.ALTER_CONFIGS: (_Mirror("responses", "resources", _RESOURCE),),
        ApiKey.INCREMENTAL_ALTER_CONFIGS: (_Mirror("responses", "resources", _RESOURCE),),
        ApiKey.ALTER_REPLICA_LOG_DIRS: (
            _Mirror(
                "results",
                "topics",
                {"topic_name": "name"},
                _Mirror("partitions", "partitions", _INDEX_IS_ELEMENT),
                through="dirs",
            ),
        ),
        ApiKey.CREATE_PARTITIONS: (_Mirror("results", "topics", _NAME),),
        ApiKey.DELETE_GROUPS: (_Mirror("results", "groups_names", _GROUP_IS_ELEMENT),),
        ApiKey.ELECT_LEADERS: (
            _Mirror(
                "replica_election_results",
                "topic_partitions",
                {"topic": "topic"},
                _Mirror("partition_result", "partitions", {"partition_id": _THE_ELEMENT}),
            ),
        ),
        ApiKey.ALTER_CLIENT_QUOTAS: (_Mirror("entries", "entries", {"entity": "entity"}),),
        ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (
            _Mirror("results", "deletions", {"user": "name"}),
            _Mirror("results", "upsertions", {"user": "name"}),
        ),
        ApiKey.DESCRIBE_PRODUCERS: (
            _Mirror(
                "topics",
                "topics",
                _NAME,
                _Mirror("partitions", "partition_indexes", _INDEX_IS_ELEMENT),
            ),
        ),
        ApiKey.DESCRIBE_TRANSACTIONS: (
            _Mirror("transaction_states", "transactional_ids", {"transactional_id": _THE_ELEMENT}),
        ),
        ApiKey.CONSUMER_GROUP_DESCRIBE: (_Mirror("groups", "group_ids", _GROUP_IS_ELEMENT),),
        ApiKey.SHARE_GROUP_DESCRIBE: (_Mirror("groups", "group_ids", _GROUP_IS_ELEMENT),),
        ApiKey.DESCRIBE_TOPIC_PARTITIONS: (_Mirror("topics", "topics", _NAME),),
        ApiKey.INITIALIZE_SHARE_GROUP_STATE: _STATE,
        ApiKey.READ_SHARE_GROUP_STATE: _STATE,
        ApiKey.WRITE_SHARE_GROUP_STATE: _STATE,
        ApiKey.DELETE_SHARE_GROUP_STATE: _STATE,
        ApiKey.READ_SHARE_GROUP_STATE_SUMMARY: _STATE,
        ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: (
            _Mirror("groups", "groups", {"group_id": "group_id"}),
        ),
    }
)
# Fields that Kafka sets together with a top-level error to values other than their defaults.
_CONSTANTS: Final[Mapping[int, Mapping[str, object]]] = MappingProxyType(
    {
        ApiKey.FIND_COORDINATOR: _NO_COORDINATOR,
        ApiKey.INIT_PRODUCER_ID: {"producer_epoch": -1},
    }
)


def _long_tail_error(api_key: int) -> _Writer:
    def write_error(version: int, body: memoryview | None, error_code: int) -> bytes | None:
        fields: dict[str, object] = dict(_CONSTANTS.get(api_key, {}))
        top_level = [part for part in load_schema(api_key).response if part.name == "error_code"]
        if top_level:
            fields["error_code"] = error_code
        mirrors = _MIRRORS.get(api_key, ())
        if mirrors and body is not None:
            _mirror(fields, mirrors, read_request(api_key, version, body), error_code)
        elif mirrors and not (top_level and version in top_level[0].versions):
            return None
        return write_response(api_key, version, fields)

    return write_error


def _mirror(
    fields: dict[str, object], mirrors: tuple[_Mirror, ...], request: object, error_code: int
) -> None:
    rows: dict[str, list[dict[str, object]]] = {}
    for mirror in mirrors:
        rows.setdefault(mirror.to, []).extend(mirror.rows(request, error_code))
    fields.update(rows)
