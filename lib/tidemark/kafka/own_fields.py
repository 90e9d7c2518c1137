"""Tidemark's own fields of Kafka's requests: tagged fields, which other brokers and clients skip.

A client sends them only to brokers that name ``OWN_SHARE_FEATURE`` in ApiVersions, because a broker
that skips them would do something else than the client requests (docs/adr/0021).
"""

from dataclasses import replace
from typing import Final

from tidemark.kafka.apis import ApiKey
from tidemark.kafka.schemas import FieldSchema

OWN_SHARE_FEATURE: Final = "tidemark.share.version"
"""Supported feature of brokers that take both fields of acknowledgements below, at level 1."""
RELEASE_DELAY_TAG: Final = 10_000
"""``release_delay`` of an acknowledgement batch, int32: time before its released records are
delivered again. Kafka assigns tags in ascending order from 0.
"""
UNSEEN_TAG: Final = 10_001
"""``is_unseen`` of an acknowledgement batch, bool: the application never received its released
records, and their delivery does not count.
"""

_SHARE_VERSIONS: Final = range(1, 3)
_OF_ACKNOWLEDGEMENTS: Final = (
    FieldSchema(
        name="release_delay",
        wire_type="int32",
        is_array=False,
        versions=_SHARE_VERSIONS,
        nullable=range(0),
        tag=RELEASE_DELAY_TAG,
        default=0,
        default_is_null=False,
        fields=(),
    ),
    FieldSchema(
        name="is_unseen",
        wire_type="bool",
        is_array=False,
        versions=_SHARE_VERSIONS,
        nullable=range(0),
        tag=UNSEEN_TAG,
        default=False,
        default_is_null=False,
        fields=(),
    ),
)
_PATH: Final = ("topics", "partitions", "acknowledgement_batches")
_WITH_ACKNOWLEDGEMENTS: Final = frozenset({ApiKey.SHARE_FETCH, ApiKey.SHARE_ACKNOWLEDGE})


def with_own_fields(api_key: int, request: tuple[FieldSchema, ...]) -> tuple[FieldSchema, ...]:
    """Return the fields of a request, with Tidemark's own."""
    if api_key not in _WITH_ACKNOWLEDGEMENTS:
        return request
    return _extended(request, _PATH)


def _extended(fields: tuple[FieldSchema, ...], path: tuple[str, ...]) -> tuple[FieldSchema, ...]:
    if not path:
        return fields + _OF_ACKNOWLEDGEMENTS
    name, *rest = path
    return tuple(
        replace(one, fields=_extended(one.fields, tuple(rest))) if one.name == name else one
        for one in fields
    )
