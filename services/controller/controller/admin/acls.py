"""Access control lists: listed from the metadata, added, deleted; and "may X do Y?"."""

from collections.abc import Sequence
from functools import partial
from typing import Final, Literal, NamedTuple

from pydantic import Field
from tidemark.client.admin.types import ConfigResource
from tidemark.model.acls import (
    ALL_OPERATIONS,
    ANY,
    MATCH,
    AclBinding,
    AclFilter,
    Acls,
    PatternType,
    Permission,
    RawBinding,
    bindings_of,
    read_binding,
)
from tidemark.model.authorization import (
    CLUSTER,
    SUPPORTED_OPERATIONS,
    Operation,
    Requester,
    Resource,
    ResourceType,
)
from tidemark.model.errors import TidemarkError
from tidemark.plans.access import Verdict, policy_of, verdict
from tidemark.protocol.acl_authorizer import AclPolicy

from controller.admin import configs
from controller.admin.context import AdminContext
from controller.admin.errors import AdminError, bad_value, conflict, from_cluster, try_again
from controller.admin.models import Input, Model
from controller.admin.per_image import PerImage

ACLS_MAX: Final = 1_000
"""ACLs of one request."""
TEXT_MAX: Final = 1_024

ResourceTypeName = Literal["TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID"]
PatternName = Literal["LITERAL", "PREFIXED"]
PermissionName = Literal["ALLOW", "DENY"]
OperationName = Literal[
    "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "TWO_PHASE_COMMIT",
]  # fmt: skip
AnyResourceType = ResourceTypeName | Literal["ANY"]
AnyPattern = PatternName | Literal["ANY", "MATCH"]
AnyOperation = OperationName | Literal["ANY"]
AnyPermission = PermissionName | Literal["ANY"]


class AclView(Model):
    """An ACL. ``operation`` is a number if it is about what no broker serves."""

    resource_type: str = Field(examples=["TOPIC"])
    resource_name: str = Field(examples=["orders"])
    pattern_type: str = Field(examples=["LITERAL"])
    principal: str = Field(examples=["User:alice"])
    host: str = Field(examples=["*"])
    operation: str = Field(examples=["READ"])
    permission: str = Field(examples=["ALLOW"])


class AclInput(Input):
    """ACL to add."""

    resource_type: ResourceTypeName = Field(examples=["TOPIC"])
    resource_name: str = Field(max_length=TEXT_MAX, examples=["orders"])
    pattern_type: PatternName = Field(default="LITERAL", examples=["LITERAL"])
    principal: str = Field(max_length=TEXT_MAX, examples=["User:alice"])
    host: str = Field(default="*", max_length=TEXT_MAX, examples=["*"])
    operation: OperationName = Field(examples=["READ"])
    permission: PermissionName = Field(default="ALLOW", examples=["ALLOW"])


class Enforcement(Model):
    """Enforcement of ACLs, as one broker is configured."""

    enforced: bool | None = Field(description="null: no broker says", examples=[True])
    super_users: list[str] = Field(description="may do everything", examples=[["User:admin"]])
    allow_without_acl: bool = Field(
        description="everybody may do everything to what no ACL covers", examples=[False]
    )
    remedy: str | None = Field(
        default=None, description="why ACLs are not enforced, and what to do"
    )


class CheckView(Model):
    """Answer to "may X do Y?"."""

    principal: str = Field(examples=["User:alice"])
    host: str = Field(examples=["10.1.2.3"])
    operation: str = Field(examples=["READ"])
    resource_type: str = Field(examples=["TOPIC"])
    resource_name: str = Field(examples=["orders"])
    allowed: bool = Field(examples=[True])
    rule: str = Field(
        description="what decides: ACL, SUPER_USER, DEFAULT (no ACL applies), NO_AUTHORIZER",
        examples=["ACL"],
    )
    because: str = Field(examples=["allowed by an ACL"])
    acl: AclView | None = Field(description="the ACL that decides")


class Question(NamedTuple):
    """May a principal do ``operation`` to a resource?"""

    principal: str
    host: str
    operation: OperationName
    resource_type: ResourceTypeName
    resource_name: str


NOT_ENFORCED: Final = (
    "set authorizer.class.name and super.users at every broker, and restart the brokers one by one:"
    " docs/operating/security.md"
)


_in_order: Final = PerImage(lambda image: tuple(bindings_of(image.acls)), lambda image: image.acls)


# -- reading


def listed(ctx: AdminContext, wanted: AclFilter) -> list[AclBinding]:
    """Return the ACLs that a filter selects, in order. Raises AdminError."""
    ctx.require(Operation.DESCRIBE, CLUSTER)
    everything = _in_order(ctx.image)
    return [one for one in everything if wanted.selects(one)]


def filter_of(
    *,
    resource_type: AnyResourceType = "ANY",
    resource_name: str | None = None,
    pattern_type: AnyPattern = "ANY",
    principal: str | None = None,
    host: str | None = None,
    operation: AnyOperation = "ANY",
    permission: AnyPermission = "ANY",
) -> AclFilter:
    """Return the filter of names. None, and ANY, select everything."""
    return AclFilter(
        ANY if resource_type == "ANY" else ResourceType[resource_type],
        resource_name,
        {"ANY": ANY, "MATCH": MATCH}.get(pattern_type) or PatternType[pattern_type],
        principal,
        host,
        ANY if operation == "ANY" else _operation_number(operation),
        ANY if permission == "ANY" else Permission[permission],
    )


def view(binding: AclBinding) -> AclView:
    """Return the view of one ACL."""
    pattern, entry = binding
    return AclView(
        resource_type=pattern.resource_type.name,
        resource_name=pattern.name,
        pattern_type=pattern.pattern_type.name,
        principal=entry.principal,
        host=entry.host,
        operation=_operation_name(entry.operation),
        permission=entry.permission.name,
    )


def _operation_number(name: OperationName) -> int:
    return ALL_OPERATIONS if name == "ALL" else Operation[name]


def _operation_name(number: int) -> str:
    if number == ALL_OPERATIONS:
        return "ALL"
    try:
        return Operation(number).name
    except ValueError:
        return str(number)


async def enforcement(ctx: AdminContext) -> Enforcement:
    """Return whether brokers enforce ACLs; ``enforced`` is None if no broker answers."""
    try:
        policy = await _policy(ctx)
    except AdminError as problem:
        return Enforcement(
            enforced=None, super_users=[], allow_without_acl=False, remedy=problem.message
        )
    if policy is None:
        return Enforcement(
            enforced=False, super_users=[], allow_without_acl=False, remedy=NOT_ENFORCED
        )
    return Enforcement(
        enforced=True,
        super_users=sorted(policy.super_users),
        allow_without_acl=policy.allow_without_acl,
    )


async def _policy(ctx: AdminContext) -> AclPolicy | None:
    """Return the policy of the first broker that answers. Raises AdminError if none does."""
    reason = "no broker is alive"
    for broker in ctx.brokers.live():
        number = broker.broker_id
        found = await ctx.cached("acl-policy", number, partial(_settings, ctx, number))
        if found.value is not None:
            return policy_of(found.value)
        reason = found.problem or reason
    raise try_again(f"no broker says how it decides: {reason}", "start a broker")


async def _settings(ctx: AdminContext, broker_id: int) -> dict[str, str | None]:
    resource = ConfigResource("broker", str(broker_id))
    found = (await configs.describe(ctx, [resource], at=broker_id))[str(broker_id)]
    if isinstance(found, AdminError):
        raise found
    return {one.name: one.value for one in found}


async def check(ctx: AdminContext, asked: Question) -> CheckView:
    """Return whether a principal may do something, and by which rule. Raises AdminError."""
    ctx.require(Operation.DESCRIBE, CLUSTER)
    resource = Resource(ResourceType[asked.resource_type], asked.resource_name)
    if resource.resource_type is ResourceType.CLUSTER:
        resource = CLUSTER
    operations = SUPPORTED_OPERATIONS[resource.resource_type]
    names = [one.name for one in operations]
    if asked.operation not in names:
        raise bad_value(
            f"a {asked.resource_type} has no operation {asked.operation} to check",
            field="operation",
            remedy=f"use one of {', '.join(names)}",
        )
    _check_principal(asked.principal)
    requester = Requester(asked.principal, asked.host)
    found = verdict(
        await _policy(ctx), ctx.image.acls, requester, Operation[asked.operation], resource
    )
    return _check_view(asked, resource, found)


def _check_view(asked: Question, resource: Resource, found: Verdict) -> CheckView:
    return CheckView(
        principal=asked.principal,
        host=asked.host,
        operation=asked.operation,
        resource_type=resource.resource_type.name,
        resource_name=resource.name,
        allowed=found.allowed,
        rule=found.rule.value,
        because=found.because,
        acl=None if found.binding is None else view(found.binding),
    )


def _check_principal(principal: str) -> None:
    kind, _, name = principal.partition(":")
    if not (kind and name):
        raise bad_value(
            f"principal {principal!r} has no type", field="principal", remedy="use User:name"
        )


# -- changing


async def create(ctx: AdminContext, inputs: Sequence[AclInput], *, dry_run: bool) -> None:
    """Add ACLs; one that exists stays. Raises AdminError, and adds none, if one of them is wrong or
    nothing enforces them.
    """
    ctx.require(Operation.ALTER, CLUSTER)
    wanted = [_binding(one) for one in inputs]
    await _require_enforced(ctx)
    if dry_run:
        return
    async with ctx.brokers.client() as admin:
        await admin.create_acls(wanted)
    await ctx.until_visible(lambda image: all(_has(image.acls, one) for one in wanted))


async def delete(ctx: AdminContext, wanted: AclFilter, *, dry_run: bool) -> list[AclBinding]:
    """Delete the ACLs that a filter selects, and return them. Raises AdminError."""
    ctx.require(Operation.ALTER, CLUSTER)
    await _require_enforced(ctx)
    if dry_run:
        return listed(ctx, wanted)
    async with ctx.brokers.client() as admin:
        deleted = await admin.delete_acls([wanted])
    await ctx.until_visible(lambda image: not any(_has(image.acls, one) for one in deleted))
    return deleted


async def _require_enforced(ctx: AdminContext) -> None:
    if await _policy(ctx) is None:
        raise conflict(
            "brokers enforce no ACLs: authorizer.class.name is not set (SECURITY_DISABLED)",
            remedy=NOT_ENFORCED,
        )


def _has(acls: Acls, binding: AclBinding) -> bool:
    return binding.entry in acls.get(binding.pattern, ())


def _binding(one: AclInput) -> AclBinding:
    """Return the binding of an input. Raises AdminError for what no ACL may have."""
    raw = RawBinding(
        ResourceType[one.resource_type],
        one.resource_name,
        PatternType[one.pattern_type],
        one.principal,
        one.host,
        _operation_number(one.operation),
        Permission[one.permission],
    )
    try:
        return read_binding(raw)
    except TidemarkError as refused:
        raise from_cluster(refused) from None
