"""Admin client of the command line, with its settings."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tidemark.cli import settings
from tidemark.cli.security import security
from tidemark.client.admin.admin import Admin
from tidemark.client.errors import ClientError
from tidemark.kafka.apis import ApiKey

API_ATTRIBUTE = "tidemark_api"
"""Name of the attribute of an exception with the API that failed."""


@asynccontextmanager
async def open_admin(bootstrap: str) -> AsyncIterator[Admin]:
    """Open an admin client; an error that leaves the block carries the API of its request."""
    timeout_ms = settings.whole_number("timeout-ms")
    client = Admin(
        bootstrap,
        client_id=settings.look_up("client-id").value,
        default_api_timeout_ms=timeout_ms,
        request_timeout_ms=min(30_000, timeout_ms),
        connections_setup_timeout_ms=min(10_000, timeout_ms),
        **security(),
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
