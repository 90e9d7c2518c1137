"""Admin client of the command line, with its settings."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, TypeVar

from tidemark.cli import settings
from tidemark.cli.security import security
from tidemark.client.admin.cluster_admin import ClusterAdmin
from tidemark.client.errors import ClientError
from tidemark.kafka.apis import ApiKey

if TYPE_CHECKING:
    from tidemark.client.admin.admin import Admin

AnyAdmin = TypeVar("AnyAdmin", bound=ClusterAdmin)

API_ATTRIBUTE = "tidemark_api"
"""Name of the attribute of an exception with the API that failed."""


@asynccontextmanager
async def open_admin(bootstrap: str) -> "AsyncIterator[Admin]":
    """Open an admin client; an error that leaves the block carries the API of its request.

    Raises ClientError at once if no broker answers: calls of coordinators and leaders would be
    tried again until their time is over.
    """
    from tidemark.client.admin.admin import Admin

    async with _opened(Admin, bootstrap) as admin:
        await admin.describe_cluster()
        yield admin


@asynccontextmanager
async def open_cluster_admin(bootstrap: str) -> AsyncIterator[ClusterAdmin]:
    """Do as ``open_admin``, for topics, configurations and brokers alone: it imports less."""
    async with _opened(ClusterAdmin, bootstrap) as admin:
        yield admin


@asynccontextmanager
async def _opened(kind: type[AnyAdmin], bootstrap: str) -> AsyncIterator[AnyAdmin]:
    timeout_ms = settings.whole_number("timeout-ms")
    client = kind(
        bootstrap,
        client_id=settings.look_up("client-id").value,
        default_api_timeout_ms=timeout_ms,
        request_timeout_ms=min(30_000, timeout_ms),
        connections_setup_timeout_ms=min(10_000, timeout_ms),
        **security(bootstrap),
    )
    async with client as admin:
        try:
            yield admin
        except ClientError as error:
            error.where = error.where or bootstrap
            if not hasattr(error, API_ATTRIBUTE):
                setattr(error, API_ATTRIBUTE, api_name(admin.last_api))
            raise


def api_name(key: ApiKey) -> str:
    """Return Kafka's name of an API: ``CreateTopics``."""
    return "".join(part.capitalize() for part in key.name.split("_"))
