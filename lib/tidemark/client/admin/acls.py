"""Access control lists in the admin client (KIP-140, KIP-290)."""

from collections.abc import Iterable
from typing import Any

from tidemark.client.admin import answers as admin_answers
from tidemark.client.admin.calls import AdminCalls
from tidemark.client.errors import error_for
from tidemark.kafka.apis import ApiKey
from tidemark.model.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    PatternType,
    Permission,
    ResourcePattern,
)
from tidemark.model.authorization import ResourceType
from tidemark.model.errors import ErrorCode


class AclAdmin(AdminCalls):
    """Methods of Admin for access control lists."""

    async def describe_acls(self, wanted: AclFilter | None = None) -> list[AclBinding]:
        """Return the bindings that a filter selects (None: all), in order. Raises ClientError."""
        answer = await self._ask_any(ApiKey.DESCRIBE_ACLS, _filter(wanted or AclFilter()))
        if answer.error_code != ErrorCode.NONE:
            raise error_for(
                answer.error_code, "describing ACLs failed", detail=answer.error_message
            )
        return sorted(
            _binding(pattern, entry) for pattern in answer.resources for entry in pattern.acls
        )

    async def create_acls(self, bindings: Iterable[AclBinding]) -> None:
        """Create bindings; one that exists stays. Raises ClientError."""
        named = list(bindings)
        creations = [
            {
                "resource_type": int(one.pattern.resource_type),
                "resource_name": one.pattern.name,
                "resource_pattern_type": int(one.pattern.pattern_type),
                "principal": one.entry.principal,
                "host": one.entry.host,
                "operation": int(one.entry.operation),
                "permission_type": int(one.entry.permission),
            }
            for one in named
        ]
        answer = await self._ask_any(ApiKey.CREATE_ACLS, {"creations": creations})
        names = iter(one.pattern.name for one in named)
        admin_answers.by_name(answer.results, lambda _: next(names), "creating an ACL of {}")

    async def delete_acls(self, filters: Iterable[AclFilter]) -> list[AclBinding]:
        """Delete the bindings that any of the filters selects, and return them. Raises
        ClientError.
        """
        fields = {"filters": [_filter(one) for one in filters]}
        answer = await self._ask_any(ApiKey.DELETE_ACLS, fields)
        for one in answer.filter_results:
            if one.error_code != ErrorCode.NONE:
                raise error_for(one.error_code, "deleting ACLs failed", detail=one.error_message)
        deleted = {
            _binding(each, each) for one in answer.filter_results for each in one.matching_acls
        }
        return sorted(deleted)


def _filter(wanted: AclFilter) -> dict[str, object]:
    return {
        "resource_type_filter": int(wanted.resource_type),
        "resource_name_filter": wanted.name,
        "pattern_type_filter": int(wanted.pattern_type),
        "principal_filter": wanted.principal,
        "host_filter": wanted.host,
        "operation": int(wanted.operation),
        "permission_type": int(wanted.permission),
    }


def _binding(pattern: Any, entry: Any) -> AclBinding:
    return AclBinding(
        ResourcePattern(
            ResourceType(pattern.resource_type),
            pattern.resource_name,
            PatternType(pattern.pattern_type),
        ),
        AclEntry(entry.principal, entry.host, entry.operation, Permission(entry.permission_type)),
    )
