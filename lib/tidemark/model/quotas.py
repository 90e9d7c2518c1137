"""Client quotas: entities, their values and filters, with Kafka's rules
(KIP-13, KIP-124, KIP-257, KIP-546, KIP-599, KIP-612).

A quota belongs to an entity: a user, a client id, a user with a client id, or an IP address. A part
of an entity may be the default, which is in force where no name fits.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from ipaddress import ip_address
from math import isfinite
from typing import Final, NamedTuple

from tidemark.model.errors import ErrorCode, TidemarkError

PRODUCER_BYTE_RATE: Final = "producer_byte_rate"
"""Bytes per second."""
CONSUMER_BYTE_RATE: Final = "consumer_byte_rate"
"""Bytes per second."""
REQUEST_PERCENTAGE: Final = "request_percentage"
"""Percent of the time of a broker's event loop (KIP-124)."""
CONTROLLER_MUTATION_RATE: Final = "controller_mutation_rate"
"""Partitions created and deleted, per second."""
CONNECTION_CREATION_RATE: Final = "connection_creation_rate"
"""Connections per second."""

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

DEFAULT: Final = ""
"""Name of the default of a type. No client's name is empty in an entity."""
NAME_CHARS_MAX: Final = 1_024
"""Longest name in an entity."""

_CLIENT_KEYS: Final = frozenset(
    {PRODUCER_BYTE_RATE, CONSUMER_BYTE_RATE, REQUEST_PERCENTAGE, CONTROLLER_MUTATION_RATE}
)
_IP_KEYS: Final = frozenset({CONNECTION_CREATION_RATE})
_WHOLE_MAX: Final = {
    PRODUCER_BYTE_RATE: 2**63 - 1,
    CONSUMER_BYTE_RATE: 2**63 - 1,
    CONNECTION_CREATION_RATE: 2**31 - 1,
}
"""Largest value of the keys whose values are whole numbers."""
_FRACTION_MAX: Final = 1e-6
"""A float may miss a whole number by this much, as in Kafka."""


class QuotaEntity(NamedTuple):
    """Entity of quotas. A part is None (absent), DEFAULT, or a name."""

    user: str | None = None
    client_id: str | None = None
    ip: str | None = None

    @property
    def parts(self) -> dict[str, str]:
        """Types and names of the parts that there are."""
        named = zip(ENTITY_TYPES, self, strict=True)
        return {entity_type: name for entity_type, name in named if name is not None}

    @property
    def in_words(self) -> str:
        """Name for people, as in ``user alice, client-id <default>``."""
        return ", ".join(f"{one} {name or '<default>'}" for one, name in self.parts.items())


QuotaValues = Mapping[str, float]
"""Values by key."""
ClientQuotas = Mapping[QuotaEntity, QuotaValues]
"""Values by entity; an entity without values is absent."""

RawEntity = Sequence[tuple[str, str | None]]
"""Entity as a client sent it: pairs of type and name, None for the default."""


def quotas_after(quotas: ClientQuotas, changed: ClientQuotas) -> ClientQuotas:
    """Return ``quotas`` with the entities of ``changed`` replaced; no values remove an entity."""
    if not changed:
        return quotas
    after = {**quotas, **changed}
    return {entity: values for entity, values in after.items() if values}


def read_entity(raw: RawEntity) -> QuotaEntity:
    """Return the entity of a client's types and names. Raises INVALID_REQUEST."""
    parts: dict[str, str] = {}
    for entity_type, name in raw:
        if entity_type in parts:
            raise _invalid(f"Invalid client quota entity, duplicate entity entry {entity_type}.")
        if entity_type not in ENTITY_TYPES:
            raise _invalid(f"Unhandled client quota entity type: {entity_type[:100]}")
        if name is not None and not name:
            raise _invalid(f"Empty {entity_type} not supported")
        if name is not None and len(name) > NAME_CHARS_MAX:
            raise _invalid(f"The name of a {entity_type} has more than {NAME_CHARS_MAX} characters")
        parts[entity_type] = DEFAULT if name is None else name
    if not parts:
        raise _invalid("Invalid empty client quota entity")
    ip = parts.get(IP)
    if ip is not None and len(parts) > 1:
        raise _invalid(
            "Invalid quota entity combination, IP entity should not be used with user/client ID"
            " entity."
        )
    if ip:
        ip = _read_ip(ip)
    return QuotaEntity(parts.get(USER), parts.get(CLIENT_ID), ip)


def _read_ip(name: str) -> str:
    try:
        return str(ip_address(name))
    except ValueError:
        raise _invalid(f"{name[:100]} is not a valid IP address") from None


def _normal_ip(name: str) -> str:
    """Return an address as entities have it; another name as it is."""
    try:
        return str(ip_address(name))
    except ValueError:
        return name


def check_key(entity: QuotaEntity, key: str) -> None:
    """Raise INVALID_REQUEST for a key that the entity cannot have."""
    if key not in (_CLIENT_KEYS if entity.ip is None else _IP_KEYS):
        raise _invalid(f"Invalid configuration key {key[:100]}")


def read_value(key: str, value: float) -> float:
    """Return the value of a key. Raises INVALID_REQUEST for one that the key cannot have."""
    if not (value > 0 and isfinite(value)):
        raise _invalid(f"Quota {key} must be greater than 0")
    if key not in _WHOLE_MAX:
        return value
    if value > _WHOLE_MAX[key]:
        raise _invalid(f"Proposed value for {key} is too large.")
    if abs(value - round(value)) > _FRACTION_MAX:
        raise _invalid(f"{key} cannot be a fractional value.")
    return float(round(value))


class MatchType(IntEnum):
    """Match of a filter with the names of one type (DescribeClientQuotas)."""

    EXACT = 0
    DEFAULT = 1
    SPECIFIED = 2
    """Any name, and the default."""


class FilterPart(NamedTuple):
    """Filter of one type, as a client sent it."""

    entity_type: str
    match_type: int
    match: str | None = None


class QuotaFilter(NamedTuple):
    """Selection of entities. ``wanted`` is a name, DEFAULT or None (any) by type. ``strict``: an
    entity with other types is not selected.
    """

    wanted: Mapping[str, str | None]
    strict: bool

    def selects(self, entity: QuotaEntity) -> bool:
        """Return True if the entity is selected."""
        parts = entity.parts
        if self.strict and parts.keys() != self.wanted.keys():
            return False
        return all(
            entity_type in parts and name in (None, parts[entity_type])
            for entity_type, name in self.wanted.items()
        )


def read_filter(parts: Iterable[FilterPart], *, strict: bool) -> QuotaFilter:
    """Return a client's filter. Raises INVALID_REQUEST, and UNSUPPORTED_VERSION for a type that is
    not known.
    """
    wanted: dict[str, str | None] = {}
    for part in parts:
        if not part.entity_type:
            raise _invalid("Invalid empty entity type.")
        if part.entity_type in wanted:
            raise _invalid(
                f"Entity type {part.entity_type} cannot appear more than once in the filter."
            )
        if part.entity_type not in ENTITY_TYPES:
            raise TidemarkError(
                ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {part.entity_type[:100]}"
            )
        wanted[part.entity_type] = _read_match(part)
    if IP in wanted and len(wanted) > 1:
        raise _invalid(
            "Invalid entity filter component combination. IP filter component should not be used"
            " with user or clientId filter component."
        )
    return QuotaFilter(wanted, strict)


def _read_match(part: FilterPart) -> str | None:
    if part.match_type == MatchType.EXACT:
        if part.match is None:
            raise _invalid("Request specified MATCH_TYPE_EXACT, but set match string to null.")
        if not part.match:
            raise _invalid(f"Empty {part.entity_type} not supported")
        return _normal_ip(part.match) if part.entity_type == IP else part.match
    if part.match_type not in (MatchType.DEFAULT, MatchType.SPECIFIED):
        raise _invalid(f"Unknown match type {part.match_type}")
    if part.match is not None:
        kind = MatchType(part.match_type).name
        raise _invalid(f"Request specified MATCH_TYPE_{kind}, but also specified a match string.")
    return DEFAULT if part.match_type == MatchType.DEFAULT else None


def select(quotas: ClientQuotas, wanted: QuotaFilter) -> Iterator[tuple[QuotaEntity, QuotaValues]]:
    """Yield the entities that a filter selects, with their values."""
    for entity, values in quotas.items():
        if wanted.selects(entity):
            yield entity, values


def _invalid(message: str) -> TidemarkError:
    return TidemarkError(ErrorCode.INVALID_REQUEST, message)
