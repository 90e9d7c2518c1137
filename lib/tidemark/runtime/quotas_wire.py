"""Conversion of client quotas, to and from protobuf."""

from collections.abc import Iterable

from tidemark_wire.v1 import controller_pb2 as pb

from tidemark.model.quotas import ClientQuotas, QuotaEntity


def write_entity(entity: QuotaEntity) -> pb.QuotaEntity:
    """Convert from model to wire."""
    return pb.QuotaEntity(user=entity.user, client_id=entity.client_id, ip=entity.ip)


def read_entity(wire: pb.QuotaEntity) -> QuotaEntity:
    """Convert from wire to model."""
    return QuotaEntity(
        wire.user if wire.HasField("user") else None,
        wire.client_id if wire.HasField("client_id") else None,
        wire.ip if wire.HasField("ip") else None,
    )


def write_quotas(quotas: ClientQuotas) -> list[pb.EntityQuotas]:
    """Convert from model to wire."""
    return [
        pb.EntityQuotas(entity=write_entity(entity), values=values)
        for entity, values in quotas.items()
    ]


def read_quotas(wire: Iterable[pb.EntityQuotas]) -> ClientQuotas:
    """Convert from wire to model."""
    return {read_entity(one.entity): dict(one.values) for one in wire}
