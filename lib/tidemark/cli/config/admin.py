"""Calls of ``tidemark config``."""

from collections.abc import Container, Mapping, Sequence
from typing import Any

from tidemark.cli.admin_client import open_cluster_admin
from tidemark.cli.failure import CommandError
from tidemark.client.admin.cluster_admin import ClusterAdmin
from tidemark.client.admin.types import AlterConfig, ConfigEntry, ConfigResource
from tidemark.model.config_values import in_ms
from tidemark.runtime.exit_codes import ExitCode

Row = dict[str, Any]


async def list_all(bootstrap: str, resource: ConfigResource, *, defaults: bool) -> list[Row]:
    """Return a row for each setting of a resource; without ``defaults`` only those that are set
    somewhere.
    """
    entries = await _entries(bootstrap, resource)
    return [_row(entry) for _, entry in sorted(entries.items()) if defaults or not entry.is_default]


async def get(bootstrap: str, resource: ConfigResource, names: Sequence[str]) -> list[Row]:
    """Return a row for each named setting. Raises CommandError for an unknown one.

    The default of all brokers consists of what was set there, so any name may be missing.
    """
    entries = await _entries(bootstrap, resource)
    for name in names:
        if name not in entries and resource.name == "":
            entries[name] = ConfigEntry(name, None, "not set")
        elif name not in entries:
            raise unknown(resource, name)
    return [_row(entries[name]) for name in names]


async def change(
    bootstrap: str,
    resource: ConfigResource,
    changes: Sequence[AlterConfig],
    *,
    validate_only: bool,
) -> list[Row]:
    """Change settings, all or none; return a row for each, with its value before and after. Raises
    ClientConfigError, and CommandError for the removal of a setting that there is not.

    The settings of a broker that is not alive are changed without a look at those that it has: it
    alone could show them.
    """
    async with open_cluster_admin(bootstrap) as admin:
        before: Mapping[str, ConfigEntry] = {}
        if await _can_be_asked(admin, resource):
            before = (await admin.describe_configs([resource]))[resource]
            check_unset(resource, changes, before)
        await admin.alter_configs({resource: changes}, validate_only=validate_only)
    return [
        {
            "name": each.name,
            "before": before[each.name].value if each.name in before else None,
            "operation": each.operation,
            "value": each.value,
            "outcome": "valid" if validate_only else "changed",
        }
        for each in changes
    ]


async def _can_be_asked(admin: ClusterAdmin, resource: ConfigResource) -> bool:
    """True unless the resource is a broker that is not alive."""
    if resource.kind != "broker" or not resource.name:
        return True
    alive = (await admin.describe_cluster()).brokers
    return resource.name in {str(broker.broker_id) for broker in alive}


def check_unset(
    resource: ConfigResource, changes: Sequence[AlterConfig], known: Container[str]
) -> None:
    """Raise CommandError if a setting is removed that the resource cannot have: the cluster, as
    Kafka's, takes any name, and a misspelt one would look as if it was removed.
    """
    for each in changes:
        if each.operation == "delete" and resource.name and each.name not in known:
            raise unknown(resource, each.name)


async def look_before_unset(
    admin: ClusterAdmin, resource: ConfigResource, changes: Sequence[AlterConfig]
) -> None:
    """Check what is to be removed by the settings that the cluster reports. Raises CommandError."""
    if any(each.operation == "delete" for each in changes):
        check_unset(resource, changes, (await admin.describe_configs([resource]))[resource])


def unknown(resource: ConfigResource, name: str) -> CommandError:
    """Return the failure of a setting that a resource does not have."""
    return CommandError(
        f"{_named(resource)} has no setting {name!r}",
        hint="tidemark config list --all shows them",
        code=ExitCode.USAGE,
    )


async def _entries(bootstrap: str, resource: ConfigResource) -> dict[str, ConfigEntry]:
    async with open_cluster_admin(bootstrap) as admin:
        return (await admin.describe_configs([resource], with_documentation=True))[resource]


def _row(entry: ConfigEntry) -> Row:
    default = next((each for each in entry.synonyms if each.source == "default"), None)
    shown = None
    if default is not None and default.value is not None:
        shown = in_ms(entry.name, default.name, default.value)
    return {
        "name": entry.name,
        "value": "(secret)" if entry.is_sensitive else entry.value,
        "source": entry.source,
        "default": entry.value if entry.is_default else shown,
        "type": entry.kind,
        "read_only": entry.is_read_only,
        "documentation": entry.documentation,
    }


def _named(resource: ConfigResource) -> str:
    return f"{resource.kind} {resource.name!r}" if resource.name else "the default of all brokers"
