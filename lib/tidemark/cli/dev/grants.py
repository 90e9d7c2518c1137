"""ACLs of a new secure cluster: what its ordinary user may do."""

import asyncio
import time
from collections.abc import Iterator
from typing import Final

from tidemark.cli.dev.layout import Layout
from tidemark.cli.dev.secure import ADMIN, CLIENT, MECHANISM, SecureFiles, write_private
from tidemark.cli.failure import CommandError
from tidemark.client.admin.admin import Admin
from tidemark.client.errors import AuthenticationError, ClientError
from tidemark.model.acls import WILDCARD, AclBinding, AclEntry, Permission, ResourcePattern
from tidemark.model.authorization import CLUSTER, Operation, ResourceType
from tidemark.runtime.clock import Clock
from tidemark.runtime.exit_codes import ExitCode

_AGAIN_S: Final = 0.1
_TIMEOUT_MS: Final = 10_000
_ALLOWED: Final = {
    ResourceType.TOPIC: (
        Operation.READ,
        Operation.WRITE,
        Operation.CREATE,
        Operation.DESCRIBE_CONFIGS,
    ),
    ResourceType.GROUP: (Operation.READ,),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE,),
}


def bindings() -> Iterator[AclBinding]:
    """Yield the ACLs: write, read and create any topic, in any group and transaction."""
    for resource_type, operations in _ALLOWED.items():
        for operation in operations:
            yield _allow(ResourcePattern(resource_type, WILDCARD), operation)
    cluster = ResourcePattern(CLUSTER.resource_type, CLUSTER.name)
    yield _allow(cluster, Operation.IDEMPOTENT_WRITE)


def _allow(pattern: ResourcePattern, operation: Operation) -> AclBinding:
    return AclBinding(pattern, AclEntry(f"User:{CLIENT}", WILDCARD, operation, Permission.ALLOW))


def maybe_grant(layout: Layout, deadline_ms: int) -> None:
    """Make the ACLs once, as the super user: later they are the user's to change.

    The controller makes the users soon after its start, so logins may fail for a moment. Raises
    CommandError at the deadline.
    """
    files, clock = SecureFiles.of(layout), Clock()
    if files.granted.exists():
        return
    password = files.password(ADMIN).read_text(encoding="ascii").strip()
    while True:
        try:
            asyncio.run(_grant(layout, password))
        except ClientError as problem:
            may_change = problem.retriable or isinstance(problem, AuthenticationError)
            if not may_change or clock.now_ms() >= deadline_ms:
                raise CommandError(
                    f"the user {ADMIN} cannot make the first ACLs: {problem}",
                    hint=f"see the logs in {layout.directory / 'logs'}. A cluster that had users"
                    " before it became secure keeps these alone: choose another --dir",
                    code=ExitCode.UNAVAILABLE,
                ) from None
            time.sleep(_AGAIN_S)
        else:
            write_private(files.granted, b"")
            return


async def _grant(layout: Layout, password: str) -> None:
    client = Admin(
        layout.bootstrap,
        client_id="tidemark-dev",
        request_timeout_ms=_TIMEOUT_MS,
        default_api_timeout_ms=_TIMEOUT_MS,
        security_protocol="SASL_SSL",
        sasl_mechanism=MECHANISM,
        sasl_username=ADMIN,
        sasl_password=password,
        ssl_ca_location=str(SecureFiles.of(layout).ca),
    )
    async with client as admin:
        await admin.create_acls(bindings())
