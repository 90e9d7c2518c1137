"""The first request of a command: it fails at once where no broker answers."""

from tidemark.cli.admin_client import API_ATTRIBUTE, api_name
from tidemark.cli.security import security_over_grpc
from tidemark.client.config import AdminConfig, ClientConfig, with_settings
from tidemark.client.errors import ClientError
from tidemark.client.wire.session import Session
from tidemark.kafka.apis import ApiKey
from tidemark.runtime.clock import Clock


async def reach(bootstrap: str, config: ClientConfig) -> None:
    """Ask for the brokers once, before a producer or consumer of this ``config`` is used: it would
    try again for as long as it may wait. Raises ClientError.
    """
    session = Session(bootstrap, config, Clock())
    await session.start()
    try:
        await session.transport.describe((), auto_create=False)
    except ClientError as error:
        error.where = error.where or bootstrap
        setattr(error, API_ATTRIBUTE, api_name(ApiKey.METADATA))
        raise
    finally:
        await session.close()


async def reach_over_grpc(bootstrap: str) -> None:
    """Do as ``reach``, at gRPC addresses. Raises ClientError, and CommandError for settings."""
    given = {"transport": "grpc", **security_over_grpc(bootstrap)}
    await reach(bootstrap, with_settings(AdminConfig(), given))
