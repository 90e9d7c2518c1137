"""Client quotas: listed from the metadata, set and removed."""

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import Field
from tidemark.model.authorization import CLUSTER, Operation
from tidemark.model.errors import TidemarkError
from tidemark.model.quotas import (
    CLIENT_ID,
    CONNECTION_CREATION_RATE,
    CONSUMER_BYTE_RATE,
    CONTROLLER_MUTATION_RATE,
    IP,
    PRODUCER_BYTE_RATE,
    REQUEST_PERCENTAGE,
    USER,
    QuotaEntity,
    check_key,
    read_entity,
    read_value,
)

from controller.admin.context import AdminContext
from controller.admin.errors import from_cluster, not_found
from controller.admin.models import Input, Model

KEYS: Final[Mapping[str, str]] = {
    PRODUCER_BYTE_RATE: "bytes a second from producers, at each broker",
    CONSUMER_BYTE_RATE: "bytes a second to consumers, at each broker",
    REQUEST_PERCENTAGE: "percent of the time of each broker's event loop",
    CONTROLLER_MUTATION_RATE: "partitions created and deleted a second",
    CONNECTION_CREATION_RATE: "connections a second, of an IP address",
}
"""Quotas and their units."""
NAME_MAX: Final = 1_024

EntityType = Literal["user", "client-id", "ip"]
EntityName = Annotated[str, Field(max_length=NAME_MAX)]
Entity = Annotated[
    dict[EntityType, EntityName | None],
    Field(
        description="names by type: user, client-id, both, or ip. null: the default of the type",
        examples=[{"user": "alice", "client-id": None}],
    ),
]


class QuotaView(Model):
    """Quotas of an entity."""

    entity: Entity
    values: dict[str, float] = Field(examples=[{"producer_byte_rate": 1_048_576.0}])


class QuotaChange(Input):
    """Quotas to set, and with null to remove. Others stay."""

    entity: Entity
    values: dict[str, float | None] = Field(
        min_length=1, max_length=16, examples=[{"producer_byte_rate": 1_048_576}]
    )


def listed(ctx: AdminContext, wanted: QuotaEntity) -> list[QuotaView]:
    """Return the quotas of entities that have the parts of ``wanted``, in order. Raises
    AdminError.
    """
    ctx.require(Operation.DESCRIBE_CONFIGS, CLUSTER)
    parts = wanted.parts.items()
    return [
        QuotaView(entity=shown(entity), values=dict(sorted(values.items())))
        for entity, values in sorted(ctx.image.quotas.items(), key=lambda one: sort_key(one[0]))
        if parts <= entity.parts.items()
    ]


def values_of(ctx: AdminContext, entity: QuotaEntity) -> dict[str, float]:
    """Return the quotas of an entity; {} if it has none. Raises AdminError."""
    ctx.require(Operation.DESCRIBE_CONFIGS, CLUSTER)
    return dict(ctx.image.quotas.get(entity, {}))


def sort_key(entity: QuotaEntity) -> tuple[str, ...]:
    """Return a key by which entities are ordered: users, clients of a user, addresses."""
    return tuple("" if one is None else f"={one}" for one in entity)


def shown(entity: QuotaEntity) -> Entity:
    """Return the names of an entity by type; None is a default."""
    parts = entity.parts
    types: tuple[EntityType, ...] = (USER, CLIENT_ID, IP)
    return {one: parts[one] or None for one in types if one in parts}


def entity_of(names: Mapping[EntityType, str | None]) -> QuotaEntity:
    """Return the entity of names by type. Raises AdminError."""
    try:
        return read_entity(list(names.items()))
    except TidemarkError as refused:
        raise from_cluster(refused, field="entity") from None


async def alter(ctx: AdminContext, change: QuotaChange, *, dry_run: bool = False) -> QuotaView:
    """Set and remove quotas of an entity, and return what it has then. Raises AdminError."""
    ctx.require(Operation.ALTER_CONFIGS, CLUSTER)
    entity = entity_of(change.entity)
    after = _after(ctx.image.quotas.get(entity, {}), entity, change.values)
    async with ctx.brokers.client() as admin:
        await admin.alter_quotas({entity: change.values}, validate_only=dry_run)
    if not dry_run:
        await ctx.until_visible(lambda image: dict(image.quotas.get(entity, {})) == after)
    return QuotaView(entity=shown(entity), values=after)


async def remove(ctx: AdminContext, entity: QuotaEntity, *, dry_run: bool = False) -> QuotaView:
    """Remove all quotas of an entity, and return those that it had. Raises AdminError."""
    ctx.require(Operation.ALTER_CONFIGS, CLUSTER)
    before = ctx.image.quotas.get(entity)
    if not before:
        raise not_found(
            f"{words(entity)} has no quotas",
            field="entity",
            remedy="GET /v3/clusters/{cluster_id}/quotas lists the quotas",
        )
    if not dry_run:
        async with ctx.brokers.client() as admin:
            await admin.remove_quotas(entity, before)
        await ctx.until_visible(lambda image: entity not in image.quotas)
    return QuotaView(entity=shown(entity), values=dict(before))


def words(entity: QuotaEntity) -> str:
    """Return an entity in words, as in ``user alice, client-id <default>``."""
    return ", ".join(f"{one} {name or '<default>'}" for one, name in entity.parts.items())


def _after(
    before: Mapping[str, float], entity: QuotaEntity, values: Mapping[str, float | None]
) -> dict[str, float]:
    """Return the quotas of an entity after a change. Raises AdminError for a key or value that it
    cannot have.
    """
    after = dict(before)
    for key, value in values.items():
        try:
            check_key(entity, key)
            if value is None:
                after.pop(key, None)
            else:
                after[key] = read_value(key, value)
        except TidemarkError as refused:
            raise from_cluster(refused, field=f"values.{key}") from None
    return after
