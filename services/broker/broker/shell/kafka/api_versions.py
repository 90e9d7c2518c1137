"""ApiVersions (18), versions 0 to 4: the APIs that this broker serves.

An unknown version is answered in version 0 with UNSUPPORTED_VERSION and the whole table, so that
the client can begin again (KIP-511). Features are named once they are implemented. Tidemark's own
features name the extensions of requests that native clients may send.
"""

import re
from collections.abc import Sequence
from typing import Final

from tidemark.kafka.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeature,
    SupportedFeature,
    read_api_versions_request,
    write_api_versions_response,
)
from tidemark.kafka.apis import APIS, ApiKey
from tidemark.kafka.headers import RequestHeader
from tidemark.kafka.own_fields import OWN_SHARE_FEATURE
from tidemark.model.errors import ErrorCode
from tidemark.model.metadata import FeedPosition
from tidemark.runtime.metadata_cache import MetadataCache

from broker.shell.listener.connection import Connection
from broker.shell.request_context import Software
from broker.shell.throttling import Throttling

CLIENT_NAMED_FROM: Final = 3
SUPPORTED: Final = (
    SupportedFeature("group.version", 0, 1),
    SupportedFeature("share.version", 0, 1),
    SupportedFeature(OWN_SHARE_FEATURE, 0, 1),
    SupportedFeature("transaction.version", 0, 2),
)
_GROUPS_V1: Final = FinalizedFeature("group.version", 1, 1)
_SHARE_V1: Final = FinalizedFeature("share.version", 1, 1)
_TRANSACTIONS_V2: Final = FinalizedFeature("transaction.version", 2, 2)
_VERSION_BITS: Final = 40
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(
    quotas: Throttling,
    metadata: MetadataCache,
    finalized: Sequence[FinalizedFeature],
    connection: Connection,
    header: RequestHeader,
    body: memoryview,
) -> None:
    """Answer with the table of this broker."""
    version = header.api_version
    table = [
        ApiVersion(int(key), APIS[key].advertised_min, APIS[key].max)
        for key in connection.listener.router.served()
    ]
    if not APIS[ApiKey.API_VERSIONS].serves(version):
        response = ApiVersionsResponse(int(ErrorCode.UNSUPPORTED_VERSION), table)
        connection.answer(header, write_api_versions_response(0, response))
        return
    request = read_api_versions_request(body, version)
    if version >= CLIENT_NAMED_FROM and not (
        _SOFTWARE.fullmatch(request.client_software_name)
        and _SOFTWARE.fullmatch(request.client_software_version)
    ):
        response = ApiVersionsResponse(int(ErrorCode.INVALID_REQUEST), [])
        connection.answer(header, write_api_versions_response(version, response))
        return
    if version >= CLIENT_NAMED_FROM:
        connection.software = Software(
            request.client_software_name, request.client_software_version
        )
    response = ApiVersionsResponse(
        int(ErrorCode.NONE),
        table,
        throttle_time_ms=quotas.request_ms(connection.requester.principal, header.client_id),
        supported_features=SUPPORTED,
        finalized_features_epoch=features_epoch(metadata.image.position),
        finalized_features=list(finalized),
    )
    connection.answer(header, write_api_versions_response(version, response))


def finalized_features(*, verifies: bool) -> list[FinalizedFeature]:
    """Return the features that clients may rely on. With transactions v2 the leaders of partitions
    add these to the transaction, which they do only where batches are verified.
    """
    if not verifies:
        return [_GROUPS_V1, _SHARE_V1]
    return [_GROUPS_V1, _SHARE_V1, _TRANSACTIONS_V2]


def features_epoch(position: FeedPosition) -> int:
    """Return a number that rises with the metadata, across changes of the controller: clients
    accept features only with a higher one than they have seen.
    """
    return (max(position.controller_epoch, 0) << _VERSION_BITS) + max(position.version, 0)
