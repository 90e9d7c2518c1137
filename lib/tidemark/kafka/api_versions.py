"""ApiVersions, versions 0 to 4, both directions (KIP-35, KIP-511, KIP-584).

The response header is always v0. A request of an unknown version gets a response of version 0 with
UNSUPPORTED_VERSION. Responses below version 4 omit supported features whose minimum is 0, because
older Java clients refuse them (KAFKA-17492).
"""

import struct
from collections.abc import Sequence
from typing import Final, NamedTuple

from tidemark.kafka.primitives import (
    COMPACT,
    INT16,
    INT32,
    INT64,
    PLAIN,
    compact_string_bytes,
    guarded,
    read_compact_count,
    read_compact_string,
    read_tags,
    skip_tags,
    tags_bytes,
    uvarint,
)

_FLEXIBLE_FROM: Final = 3
_THROTTLE_FROM: Final = 1
_ZERO_MINIMUM_FROM: Final = 4
_RANGE: Final = struct.Struct(">hhh")
_COMPACT_RANGE: Final = struct.Struct(">hhhB")
_LEVELS: Final = struct.Struct(">hhB")
_SUPPORTED_TAG: Final = 0
_EPOCH_TAG: Final = 1
_FINALIZED_TAG: Final = 2
_ZK_MIGRATION_TAG: Final = 3


class ApiVersionsRequest(NamedTuple):
    """Software of the client; both fields are '' before version 3."""

    client_software_name: str
    client_software_version: str


class ApiVersion(NamedTuple):
    """Versions of one API that the responding broker advertises; bounds inclusive."""

    api_key: int
    min_version: int
    max_version: int


class SupportedFeature(NamedTuple):
    """Levels of a feature that a broker supports."""

    name: str
    min_version: int
    max_version: int


class FinalizedFeature(NamedTuple):
    """Levels of a feature that the cluster has finalized."""

    name: str
    max_version_level: int
    min_version_level: int


class ApiVersionsResponse(NamedTuple):
    """Response to ApiVersions; ``finalized_features_epoch`` is -1 if unknown."""

    error_code: int
    api_versions: Sequence[ApiVersion]
    throttle_time_ms: int = 0
    supported_features: Sequence[SupportedFeature] = ()
    finalized_features_epoch: int = -1
    finalized_features: Sequence[FinalizedFeature] = ()
    zk_migration_ready: bool = False


@guarded
def read_api_versions_request(body: memoryview, version: int) -> ApiVersionsRequest:
    """Parse a request of a served version."""
    if version < _FLEXIBLE_FROM:
        return ApiVersionsRequest("", "")
    name, position = read_compact_string(body, 0)
    software_version, position = read_compact_string(body, position)
    skip_tags(body, position)
    return ApiVersionsRequest(name, software_version)


def write_api_versions_request(version: int, request: ApiVersionsRequest) -> bytes:
    """Return the body of a request; empty before version 3."""
    if version < _FLEXIBLE_FROM:
        return b""
    name, software_version = request
    return compact_string_bytes(name) + compact_string_bytes(software_version) + b"\x00"


def write_api_versions_response(version: int, response: ApiVersionsResponse) -> bytes:
    """Return the body of a response; its header is always v0."""
    pieces = [INT16.pack(response.error_code)]
    if version >= _FLEXIBLE_FROM:
        pieces.append(uvarint(len(response.api_versions) + 1))
        pieces += [_COMPACT_RANGE.pack(*api, 0) for api in response.api_versions]
    else:
        pieces.append(INT32.pack(len(response.api_versions)))
        pieces += [_RANGE.pack(*api) for api in response.api_versions]
    if version >= _THROTTLE_FROM:
        pieces.append(INT32.pack(response.throttle_time_ms))
    if version >= _FLEXIBLE_FROM:
        pieces.append(_features(version, response))
    return b"".join(pieces)


def _features(version: int, response: ApiVersionsResponse) -> bytes:
    supported = [
        feature
        for feature in response.supported_features
        if feature.min_version > 0 or version >= _ZERO_MINIMUM_FROM
    ]
    tags = []
    if supported:
        tags.append((_SUPPORTED_TAG, _feature_rows(supported)))
    if response.finalized_features_epoch != -1:
        tags.append((_EPOCH_TAG, INT64.pack(response.finalized_features_epoch)))
    if response.finalized_features:
        tags.append((_FINALIZED_TAG, _feature_rows(response.finalized_features)))
    if response.zk_migration_ready:
        tags.append((_ZK_MIGRATION_TAG, b"\x01"))
    return tags_bytes(tags)


def _feature_rows(rows: Sequence[tuple[str, int, int]]) -> bytes:
    pieces = [uvarint(len(rows) + 1)]
    for name, first, second in rows:
        pieces += (compact_string_bytes(name), _LEVELS.pack(first, second, 0))
    return b"".join(pieces)


@guarded
def read_api_versions_response(body: memoryview, version: int) -> ApiVersionsResponse:
    """Parse a response of a served version."""
    encoding = COMPACT if version >= _FLEXIBLE_FROM else PLAIN
    (error_code,) = INT16.unpack_from(body, 0)
    count, position = encoding.read_count(body, 2)
    api_versions = []
    for _ in range(count):
        api_versions.append(ApiVersion(*_RANGE.unpack_from(body, position)))
        position = encoding.skip_tags(body, position + _RANGE.size)
    throttle_time_ms = 0
    if version >= _THROTTLE_FROM:
        (throttle_time_ms,), position = INT32.unpack_from(body, position), position + 4
    response = ApiVersionsResponse(error_code, api_versions, throttle_time_ms)
    if version < _FLEXIBLE_FROM:
        return response
    tags, _ = read_tags(body, position)
    return _with_features(response, tags)


def _with_features(
    response: ApiVersionsResponse, tags: dict[int, memoryview]
) -> ApiVersionsResponse:
    if _SUPPORTED_TAG in tags:
        supported = _read_feature_rows(tags[_SUPPORTED_TAG])
        rows = tuple(SupportedFeature(*row) for row in supported)
        response = response._replace(supported_features=rows)
    if _EPOCH_TAG in tags:
        (epoch,) = INT64.unpack_from(tags[_EPOCH_TAG], 0)
        response = response._replace(finalized_features_epoch=epoch)
    if _FINALIZED_TAG in tags:
        finalized = _read_feature_rows(tags[_FINALIZED_TAG])
        levels = tuple(FinalizedFeature(*row) for row in finalized)
        response = response._replace(finalized_features=levels)
    if _ZK_MIGRATION_TAG in tags:
        response = response._replace(zk_migration_ready=tags[_ZK_MIGRATION_TAG][0] != 0)
    return response


def _read_feature_rows(value: memoryview) -> list[tuple[str, int, int]]:
    count, position = read_compact_count(value, 0)
    rows = []
    for _ in range(count):
        name, position = read_compact_string(value, position)
        first, second = struct.unpack_from(">hh", value, position)
        position = skip_tags(value, position + 4)
        rows.append((name, first, second))
    return rows
