"""Hostile values for well-formed requests: every field has a value of its type, and a bad one.

A long-tail request is made from its schema; the hand-written ones (Produce, Fetch...) from their
own types. All chance comes from one `random.Random`.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

from tidemark.kafka import api_versions, fetch, list_offsets, long_tail, metadata, produce
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.primitives import ZERO_UUID
from tidemark.kafka.schemas import FieldSchema, load_schema

NOT_UTF8: Final = "\u00a4\u00a5\u00a4"
"""Stands in a text for bytes that are no UTF-8; `spoil_texts` puts those in its place."""

_NOT_UTF8_BYTES: Final = b"\xff\xfe\xc0\x80\xed\xa0"
assert len(NOT_UTF8.encode()) == len(_NOT_UTF8_BYTES)

_BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_TEXTS: Final = (
    "",
    "a",
    " ",
    ".",
    "..",
    "../../etc/passwd",
    "/",
    "\0",
    "a\nb",
    "%s%n{0}",
    "topic,with,commas",
    "\u202eevil",
    "\U0001f4a3" * 20,
    "x" * 249,
    "x" * 250,
    "__consumer_offsets",
    "None",
    "-1",
    "1",
    "NaN",
    "1e999",
    "9" * 400,
)
_CONFIGS: Final = (
    "retention.ms",
    "cleanup.policy",
    "compression.type",
    "max.message.bytes",
    "segment.bytes",
    "min.insync.replicas",
    "flush.messages",
    "follower.replication.throttled.replicas",
    "no.such.config",
)
_TOPIC_FIELDS: Final = frozenset({"name", "topic", "topic_name", "topic_names", "resource_name"})
_TIMEOUTS: Final = (0, -1, 1, 20, 100, 2**31 - 1, -(2**31))
_WAITS_MS: Final = (0, 0, 0, -1, 1, 5, -(2**31))
_FETCH_SIZES: Final = (0, -1, 1, 61, 1_000, 65_536, 2**31 - 1, -(2**31))
_OFFSETS: Final = (0, 0, 1, 3, 10, -1, -2, 2**31, 2**63 - 1, -(2**63))
_MARKS: Final = (-1, -2, -4, -5, -6, -7, -(2**63))
_TIMES: Final = (*_MARKS, *_MARKS, -3, 0, 1, 1_700_000_000_000, 2**63 - 1)
SHARE_GROUPS: Final = ("sharers", "others")
_SHARE_MEMBERS: Final = ("m1", "m2", "m3")
_ACKS: Final = (1, 1, 1, -1, -1, 7, -2, 2**15 - 1, -(2**15))


@dataclass(frozen=True)
class World:
    """What exists at the broker under test."""

    topics: Mapping[str, bytes]
    """Names and ids of the topics that every request may use and none may change."""
    disposable: tuple[str, ...]
    """Topics that requests create, change and delete."""
    session_ids: list[int] = field(default_factory=lambda: [0])
    """Fetch sessions that the broker has opened lately."""


class Values:
    """Draws requests: `request_body` is the whole face."""

    def __init__(self, dice: random.Random, world: World) -> None:
        self.dice = dice
        self.world = world
        # The last topics cost most: a worker looks at what is produced there, or a disk is waited
        # for.
        self._topics = tuple(
            name for index, name in enumerate(world.topics) for _ in range(max(1, 12 - 4 * index))
        )
        self._ids = (*world.topics.values(), ZERO_UUID, b"\xff" * 16, bytes(range(16)))
        self._hot: Mapping[int, Callable[[int], bytes]] = {
            ApiKey.PRODUCE: self._produce,
            ApiKey.FETCH: self._fetch,
            ApiKey.LIST_OFFSETS: self._list_offsets,
            ApiKey.METADATA: self._metadata,
            ApiKey.API_VERSIONS: self._api_versions,
            ApiKey.SHARE_FETCH: partial(self._share, ApiKey.SHARE_FETCH),
            ApiKey.SHARE_ACKNOWLEDGE: partial(self._share, ApiKey.SHARE_ACKNOWLEDGE),
        }
        self.batch: Callable[[], bytes | None] = lambda: None
        """What a Produce request carries for one partition; set by who knows batches."""

    def request_body(self, api_key: int, version: int) -> bytes:
        """The body of one well-formed request with hostile values."""
        hot = self._hot.get(api_key)
        if hot is not None:
            return hot(version)
        schema = load_schema(api_key)
        return long_tail.write_request(api_key, version, self._struct(schema.request, version))

    # -- plain values

    def integer(self, bits: int) -> int:
        """Small, extreme, or anything."""
        dice = self.dice
        top = 1 << (bits - 1)
        match dice.randrange(6):
            case 0 | 1 | 2:
                return dice.randrange(-2, 6)
            case 3:
                return dice.choice((-top, top - 1, -top + 1, top - 2, top >> 1))
            case 4:
                return dice.randrange(-top, top)
            case _:
                return min(top - 1, 1 << dice.randrange(bits - 1))

    def text(self) -> str:
        """A name that exists, or one that hurts."""
        dice = self.dice
        die = dice.randrange(100)
        if die < 45:
            return dice.choice(self._topics)
        if die < 60:
            return dice.choice(self.world.disposable)
        if die < 97:
            return dice.choice(_TEXTS)
        return NOT_UTF8 if die < 99 else "y" * dice.choice((1_000, 32_767))

    def topic(self) -> str:
        """Mostly a topic that exists."""
        return self.dice.choice(self._topics) if self.dice.random() < 0.8 else self.text()

    def topic_id(self) -> bytes:
        """Mostly that of a topic that exists."""
        return self.dice.choice(self._ids)

    def count(self) -> int:
        """How many elements of an array: few, and once in a while many."""
        die = self.dice.randrange(400)
        if die:
            return (die % 4 + 1) // 2
        return self.dice.choice((50, 300))

    def partition(self) -> int:
        """Mostly one that exists."""
        return 0 if self.dice.random() < 0.6 else self.integer(32)

    def some(self, draw: Callable[[], Any]) -> list[Any]:
        """A list of draws."""
        return [draw() for _ in range(self.count())]

    # -- the long tail

    def _struct(self, fields: Sequence[FieldSchema], version: int) -> dict[str, object]:
        return {one.name: self._value(one, version) for one in fields if version in one.versions}

    def _value(self, one: FieldSchema, version: int) -> object:
        if version in one.nullable and self.dice.random() < 0.15:
            return None
        if one.wire_type == "struct":

            def draw() -> object:
                return self._struct(one.fields, version)
        else:

            def draw() -> object:
                return self._plain(one)

        return self.some(draw) if one.is_array else draw()

    def _plain(self, one: FieldSchema) -> object:
        dice, name = self.dice, one.name
        match one.wire_type:
            case "string":
                return self._string(name)
            case "bool":
                return name == "validate_only" or dice.random() < 0.5
            case "uuid":
                return self.topic_id()
            case "bytes" | "records":
                return dice.randbytes(dice.randrange(40))
            case "float64":
                return dice.choice((0.0, -1.0, 1e308, float("inf"), float("nan")))
        if "timeout" in name:
            return dice.choice(_TIMEOUTS)
        if "partition_index" in name:
            return self.partition()
        if name == "resource_type":
            return dice.choice((2, 2, 4, 8, 0, -1, 127))
        return self.integer(_BITS[one.wire_type])

    def _string(self, name: str) -> str:
        if name in _TOPIC_FIELDS:
            return self.topic()
        if name.startswith("config"):
            return self.dice.choice(_CONFIGS) if self.dice.random() < 0.7 else self.text()
        return self.text()

    # -- hand-written messages

    def _name_and_id(self, *, by_id: bool) -> tuple[str, bytes]:
        return ("", self.topic_id()) if by_id else (self.topic(), ZERO_UUID)

    def _produce(self, version: int) -> bytes:
        def partition() -> produce.ProducePartition:
            batch = self.batch()
            return produce.ProducePartition(
                self.partition(), None if batch is None else memoryview(batch)
            )

        def topic() -> produce.ProduceTopic:
            return produce.ProduceTopic(
                *self._name_and_id(by_id=version >= 13),
                [partition() for _ in range(1 + (self.dice.random() < 0.1))],
            )

        dice = self.dice
        transactional_id = self.text() if dice.random() < 0.05 else None
        topics = [topic() for _ in range(dice.choice((1, 1, 1, 1, 1, 1, 0, 2)))]
        acks = 0 if dice.random() < 0.02 else dice.choice(_ACKS)
        request = produce.ProduceRequest(transactional_id, acks, dice.choice(_TIMEOUTS), topics)
        return produce.write_produce_request(version, request)

    def _fetch(self, version: int) -> bytes:
        dice = self.dice

        def partition() -> fetch.FetchPartition:
            epoch = -1 if dice.random() < 0.7 else self.integer(32)
            return fetch.FetchPartition(
                self.partition(), epoch, dice.choice(_OFFSETS), -1, -1, dice.choice(_FETCH_SIZES)
            )

        def topic() -> fetch.FetchTopic:
            return fetch.FetchTopic(*self._name_and_id(by_id=version >= 13), self.some(partition))

        def forgotten() -> tuple[str, bytes, list[int]]:
            return (*self._name_and_id(by_id=version >= 13), self.some(self.partition))

        session = (0, -1)
        if version >= 7 and dice.random() < 0.5:
            session = (
                dice.choice(self.world.session_ids),
                dice.choice((-1, 0, 1, 2, self.integer(32))),
            )
        request = fetch.FetchRequest(
            -1 if dice.random() < 0.8 else self.integer(32),
            -1,
            dice.choice(_WAITS_MS),
            dice.choice((0, 1, -1, 2**31 - 1)),
            dice.choice(_FETCH_SIZES),
            dice.choice((0, 0, 1, 2, -1)),
            *session,
            self.some(topic),
            self.some(forgotten) if version >= 7 and dice.random() < 0.2 else [],
            self.text() if version >= 11 else "",
            None,
        )
        return fetch.write_fetch_request(version, request)

    def _list_offsets(self, version: int) -> bytes:
        dice = self.dice

        def partition() -> list_offsets.ListOffsetsPartition:
            epoch = -1 if dice.random() < 0.8 else self.integer(32)
            return list_offsets.ListOffsetsPartition(
                self.partition(), dice.choice(_TIMES), epoch if version >= 4 else -1
            )

        def topic() -> list_offsets.ListOffsetsTopic:
            return list_offsets.ListOffsetsTopic(self.topic(), self.some(partition))

        request = list_offsets.ListOffsetsRequest(
            self.integer(32),
            self.integer(8) if version >= 2 else 0,
            self.some(topic),
            dice.choice(_TIMEOUTS) if version >= 10 else 0,
        )
        return list_offsets.write_list_offsets_request(version, request)

    def _metadata(self, version: int) -> bytes:
        dice = self.dice

        def query() -> metadata.MetadataQuery:
            if version >= 10 and dice.random() < 0.4:
                return metadata.MetadataQuery(None, self.topic_id())
            return metadata.MetadataQuery(self.topic())

        topics = None if dice.random() < 0.1 else [query(), *self.some(query)]
        request = metadata.MetadataRequest(
            topics,
            version < 4 or dice.random() < 0.5,
            8 <= version <= 10 and dice.random() < 0.5,
            version >= 8 and dice.random() < 0.5,
        )
        return metadata.write_metadata_request(version, request)

    def _share(self, key: ApiKey, version: int) -> bytes:
        """A request of one of few members, often with the next epoch of its session."""
        dice = self.dice
        fields = self._struct(load_schema(key).request, version)
        fields["group_id"] = dice.choice(SHARE_GROUPS) if dice.random() < 0.9 else self.text()
        fields["member_id"] = dice.choice(_SHARE_MEMBERS) if dice.random() < 0.9 else self.text()
        fields["share_session_epoch"] = dice.choice((0, 0, 1, 1, 2, 3, 4, -1, self.integer(32)))
        if key is ApiKey.SHARE_FETCH:
            fields["max_wait"] = dice.choice(_WAITS_MS)
            fields["min_bytes"] = dice.choice((0, 1, 1, -1, 2**31 - 1))
            fields["max_bytes"] = dice.choice(_FETCH_SIZES)
            fields["max_records"] = dice.choice((1, 500, 500, self.integer(32)))
            if dice.random() < 0.7:
                for name in ("share_acquire_mode", "is_renew_ack"):
                    if name in fields:
                        fields[name] = dice.randrange(2) if name[0] == "s" else False
        return long_tail.write_request(key, version, fields)

    def _api_versions(self, version: int) -> bytes:
        request = api_versions.ApiVersionsRequest(self.text(), self.text())
        return api_versions.write_api_versions_request(version, request)


def spoil_texts(body: bytes) -> bytes:
    """The bytes with every `NOT_UTF8` made what its name says."""
    return body.replace(NOT_UTF8.encode(), _NOT_UTF8_BYTES)
