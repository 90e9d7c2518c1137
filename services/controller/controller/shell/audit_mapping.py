"""Changes of the cluster as the audit has them, from requests and responses on the wire."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

from tidemark.model.acls import AclBinding
from tidemark.model.acls import read_binding as checked_binding
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.protocol.audit import rule_text
from tidemark.runtime.acl_wire import read_binding, read_raw_binding
from tidemark.runtime.quotas_wire import read_entity
from tidemark_wire.v1 import controller_pb2 as pb

from controller.core.configs import (
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)


class Change(NamedTuple):
    """Change of one resource, or a failed one. Values of settings and credentials are not here."""

    resource_type: str
    resource: str
    error: ErrorCode


_KINDS: Final[Mapping[int, str]] = {
    TOPIC_RESOURCE: "Topic",
    BROKER_RESOURCE: "Broker",
    CLIENT_METRICS_RESOURCE: "ClientMetrics",
    GROUP_RESOURCE: "Group",
}


def _topics(_: Any, response: Any) -> Iterator[Change]:
    for one in response.topics:
        name = one.name or one.topic_id.hex()
        yield Change("Topic", name, ErrorCode(one.error_code))


def _configs(
    request: pb.AlterConfigsRequest, response: pb.AlterConfigsResponse
) -> Iterator[Change]:
    del request
    for one in response.results:
        kind = _KINDS.get(one.resource_type, "Cluster")
        yield Change(kind, one.resource_name, ErrorCode(one.error_code))


def _new_acls(request: pb.CreateAclsRequest, response: pb.CreateAclsResponse) -> Iterator[Change]:
    for wanted, one in zip(request.bindings, response.results, strict=False):
        raw = read_raw_binding(wanted)
        try:
            text = rule_text(checked_binding(raw))
        except TidemarkError:
            text = f"an ACL of {raw.principal} on {raw.name} that cannot be"
        yield Change("Acl", text, ErrorCode(one.error_code))


def _old_acls(_: pb.DeleteAclsRequest, response: pb.DeleteAclsResponse) -> Iterator[Change]:
    for one in response.results:
        for wire in one.deleted:
            deleted: AclBinding = read_binding(wire)
            yield Change("Acl", rule_text(deleted), ErrorCode.NONE)
        if one.error_code:
            yield Change("Acl", "a filter of ACLs", ErrorCode(one.error_code))


def _users(_: pb.AlterUsersRequest, response: pb.AlterUsersResponse) -> Iterator[Change]:
    for one in response.results:
        yield Change("User", one.user, ErrorCode(one.error_code))


def _quotas(request: pb.AlterQuotasRequest, response: pb.AlterQuotasResponse) -> Iterator[Change]:
    if request.validate_only:
        return
    for wanted, one in zip(request.entries, response.results, strict=False):
        parts = read_entity(wanted.entity).parts.items()
        entity = ", ".join(f"{kind} {name or '<default>'}" for kind, name in parts)
        values = [f"{key}={value:g}" for key, value in sorted(wanted.values.items())]
        values += [f"{key} removed" for key in wanted.removed]
        yield Change("ClientQuota", f"{entity}: {', '.join(values)}", ErrorCode(one.error_code))


CHANGES: Final[Mapping[str, Callable[[Any, Any], Iterator[Change]]]] = {
    "CreateTopics": _topics,
    "DeleteTopics": _topics,
    "CreatePartitions": _topics,
    "AlterConfigs": _configs,
    "CreateAcls": _new_acls,
    "DeleteAcls": _old_acls,
    "AlterUsers": _users,
    "AlterQuotas": _quotas,
}
"""Changes in a request and its response, by RPC."""


def was_answered(response: Any) -> bool:
    """True if this controller decided about a request: another one, or a later one, decides about
    one that was not.
    """
    return not response.error_code or bool(ErrorCode(response.error_code) in _DENIED)


_DENIED: Final = frozenset({ErrorCode.CLUSTER_AUTHORIZATION_FAILED})
