"""Calls of ``tidemark acl``."""

from collections.abc import Sequence

from tidemark.cli.acl.bindings import Row, binding_row
from tidemark.cli.admin_client import open_admin
from tidemark.cli.failure import CommandError
from tidemark.client.admin.admin import Admin, ConfigResource
from tidemark.model.acls import AclBinding, AclEntry, AclFilter, Acls, ResourcePattern
from tidemark.model.authorization import Operation, Requester, Resource
from tidemark.model.errors import ErrorCode
from tidemark.plans.access import (
    POLICY_SETTINGS,
    binding_words,
    operation_word,
    policy_of,
    resource_words,
    verdict,
)
from tidemark.protocol.acl_authorizer import AclPolicy


async def list_all(bootstrap: str, wanted: AclFilter) -> list[Row]:
    """Return a row for each ACL that the filter selects."""
    async with open_admin(bootstrap) as admin:
        return [binding_row(one) for one in await admin.describe_acls(wanted)]


async def add(bootstrap: str, bindings: Sequence[AclBinding]) -> None:
    """Create ACLs."""
    async with open_admin(bootstrap) as admin:
        await admin.create_acls(bindings)


async def remove(bootstrap: str, bindings: Sequence[AclBinding]) -> None:
    """Delete ACLs. Raises CommandError, and deletes none, if one of them does not exist."""
    async with open_admin(bootstrap) as admin:
        missing = set(bindings) - set(await admin.describe_acls())
        if missing:
            raise CommandError(
                f"there is no ACL: {binding_words(min(missing))}"
                f" ({ErrorCode.RESOURCE_NOT_FOUND.name})",
                address=bootstrap,
                hint="tidemark acl list",
            )
        await admin.delete_acls([AclFilter.only(one) for one in bindings])


async def check(
    bootstrap: str, requester: Requester, operation: Operation, resource: Resource
) -> Row:
    """Return whether a principal may do something, and the rule that decides it."""
    async with open_admin(bootstrap) as admin:
        acls: dict[ResourcePattern, frozenset[AclEntry]] = {}
        for pattern, entry in await admin.describe_acls():
            acls[pattern] = acls.get(pattern, frozenset()) | {entry}
        policy = await _policy(admin)
    return decided(policy, acls, requester, operation, resource)


def decided(
    policy: AclPolicy | None,
    acls: Acls,
    requester: Requester,
    operation: Operation,
    resource: Resource,
) -> Row:
    """Return the row of a decision, which is made as brokers make it."""
    found = verdict(policy, acls, requester, operation, resource)
    return {
        "principal": requester.principal,
        "operation": operation_word(operation),
        "resource": resource_words(resource),
        "allowed": "yes" if found.allowed else "no",
        "because": found.because,
        "acl": "-" if found.binding is None else binding_words(found.binding),
    }


async def _policy(admin: Admin) -> AclPolicy | None:
    """Return the policy of one broker."""
    broker = min(one.broker_id for one in (await admin.describe_cluster()).brokers)
    resource = ConfigResource("broker", str(broker))
    settings = (await admin.describe_configs([resource]))[resource]
    return policy_of({name: settings[name].value for name in POLICY_SETTINGS})
