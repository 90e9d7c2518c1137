"""Conversion of access control lists, to and from protobuf."""

from collections.abc import Iterable

from tidemark_wire.v1 import controller_pb2 as pb

from tidemark.model.acls import (
    AclBinding,
    AclEntry,
    AclFilter,
    Acls,
    PatternType,
    Permission,
    RawBinding,
    ResourcePattern,
)
from tidemark.model.authorization import ResourceType


def write_acls(acls: Acls) -> list[pb.PatternAcls]:
    """Convert from model to wire."""
    return [
        pb.PatternAcls(pattern=_write_pattern(pattern), entries=map(_write_entry, sorted(entries)))
        for pattern, entries in acls.items()
    ]


def read_acls(wire: Iterable[pb.PatternAcls]) -> Acls:
    """Convert from wire to model."""
    return {_read_pattern(one.pattern): frozenset(map(_read_entry, one.entries)) for one in wire}


def write_binding(binding: AclBinding) -> pb.AclBinding:
    """Convert from model to wire."""
    return pb.AclBinding(pattern=_write_pattern(binding.pattern), entry=_write_entry(binding.entry))


def read_binding(wire: pb.AclBinding) -> AclBinding:
    """Convert from wire to model: a binding that a controller wrote."""
    return AclBinding(_read_pattern(wire.pattern), _read_entry(wire.entry))


def read_raw_binding(wire: pb.AclBinding) -> RawBinding:
    """Convert from wire to the numbers and names of a client, which may be invalid."""
    pattern, entry = wire.pattern, wire.entry
    return RawBinding(
        pattern.resource_type,
        pattern.name,
        pattern.pattern_type,
        entry.principal,
        entry.host,
        entry.operation,
        entry.permission,
    )


def write_raw_binding(raw: RawBinding) -> pb.AclBinding:
    """Convert from the numbers and names of a client to wire."""
    return pb.AclBinding(
        pattern=pb.ResourcePattern(
            resource_type=raw.resource_type, name=raw.name, pattern_type=raw.pattern_type
        ),
        entry=pb.AclEntry(
            principal=raw.principal,
            host=raw.host,
            operation=raw.operation,
            permission=raw.permission,
        ),
    )


def write_filter(wanted: AclFilter) -> pb.DeleteAclsRequest.Filter:
    """Convert from model to wire."""
    return pb.DeleteAclsRequest.Filter(**wanted._asdict())


def read_filter(wire: pb.DeleteAclsRequest.Filter) -> AclFilter:
    """Convert from wire to model."""
    return AclFilter(
        wire.resource_type,
        wire.name if wire.HasField("name") else None,
        wire.pattern_type,
        wire.principal if wire.HasField("principal") else None,
        wire.host if wire.HasField("host") else None,
        wire.operation,
        wire.permission,
    )


def _write_pattern(pattern: ResourcePattern) -> pb.ResourcePattern:
    return pb.ResourcePattern(
        resource_type=pattern.resource_type,
        name=pattern.name,
        pattern_type=pattern.pattern_type,
    )


def _read_pattern(wire: pb.ResourcePattern) -> ResourcePattern:
    return ResourcePattern(
        ResourceType(wire.resource_type), wire.name, PatternType(wire.pattern_type)
    )


def _write_entry(entry: AclEntry) -> pb.AclEntry:
    return pb.AclEntry(
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission=entry.permission,
    )


def _read_entry(wire: pb.AclEntry) -> AclEntry:
    return AclEntry(wire.principal, wire.host, wire.operation, Permission(wire.permission))
