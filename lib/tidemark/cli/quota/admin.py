"""Calls of ``tidemark quota``."""

from collections.abc import Mapping, Sequence
from typing import Any

from tidemark.cli.admin_client import open_admin
from tidemark.cli.failure import CommandError
from tidemark.model.errors import ErrorCode
from tidemark.model.quotas import ENTITY_TYPES, QuotaEntity

Row = dict[str, Any]
DEFAULT_SHOWN = "<default>"


async def list_all(bootstrap: str, wanted: QuotaEntity) -> list[Row]:
    """Return a row for each quota of the entities with the parts of ``wanted``."""
    async with open_admin(bootstrap) as admin:
        quotas = await admin.describe_quotas(wanted)
    return [
        {**_shown(entity), "quota": key, "value": value}
        for entity, values in quotas.items()
        for key, value in values.items()
    ]


async def set_values(bootstrap: str, entity: QuotaEntity, values: Mapping[str, float]) -> None:
    """Set quotas of an entity."""
    async with open_admin(bootstrap) as admin:
        await admin.alter_quotas({entity: dict(values)})


async def remove(bootstrap: str, entity: QuotaEntity, keys: Sequence[str]) -> None:
    """Remove quotas of an entity, all without ``keys``. Raises CommandError if it has none."""
    async with open_admin(bootstrap) as admin:
        found = (await admin.describe_quotas(entity, strict=True)).get(entity, {})
        missing = [key for key in keys if key not in found]
        if missing or not found:
            words = f"quota {missing[0]}" if missing else "quotas"
            raise CommandError(
                f"{name_of(entity)} has no {words} ({ErrorCode.RESOURCE_NOT_FOUND.name})",
                address=bootstrap,
                hint="tidemark quota list",
            )
        await admin.remove_quotas(entity, keys or list(found))


def name_of(entity: QuotaEntity) -> str:
    """Return an entity in words, as in ``user alice, client-id <default>``."""
    return entity.in_words


def _shown(entity: QuotaEntity) -> Row:
    parts = entity.parts
    return {one: (parts[one] or DEFAULT_SHOWN) if one in parts else None for one in ENTITY_TYPES}
