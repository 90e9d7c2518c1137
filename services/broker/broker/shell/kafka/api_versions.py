"""ApiVersions (18), versions 0 to 4: what is served here, and nothing else.

An unknown version is answered in version 0 with UNSUPPORTED_VERSION and the whole table, so that
the client can begin again (KIP-511). Features are named only once they are implemented: none so
far.
"""

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from tidemark.kafka.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    read_api_versions_request,
    write_api_versions_response,
)
from tidemark.kafka.apis import APIS, ApiKey
from tidemark.kafka.headers import RequestHeader
from tidemark.model.errors import ErrorCode

from broker.shell.kafka import find_coordinator

if TYPE_CHECKING:
    from broker.shell.connection import Connection
    from broker.shell.node import BrokerNode

CLIENT_NAMED_FROM: Final = 3
# Where less is advertised than the codec has.
_MAX: Final[Mapping[ApiKey, int]] = {ApiKey.FIND_COORDINATOR: find_coordinator.ADVERTISED_MAX}
_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


def handle(
    node: "BrokerNode", connection: "Connection", header: RequestHeader, body: memoryview
) -> None:
    """The table of this broker."""
    version = header.api_version
    table = [
        ApiVersion(int(key), APIS[key].advertised_min, _MAX.get(key, APIS[key].max))
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
    image = node.image
    response = ApiVersionsResponse(
        int(ErrorCode.NONE),
        table,
        finalized_features_epoch=max(image.position.version, 0),
    )
    connection.answer(header, write_api_versions_response(version, response))
