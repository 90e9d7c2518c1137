"""Hostile frames, and what each may lead to.

A frame is judged before it is sent, by the same decoders that the broker has: what can be read must
be answered, what cannot be read must close the connection. So frames that are answered go pipelined
over long-lived connections, and every other frame is the last of its own.
"""

import random
import struct
from collections.abc import Mapping
from enum import Enum
from itertools import accumulate
from typing import Any, Final, NamedTuple

from e2e.fuzz.batches import HostileBatches
from e2e.fuzz.values import NOT_UTF8, Values, World, spoil_texts
from tidemark.kafka import (
    api_versions,
    fetch,
    list_offsets,
    long_tail,
    metadata,
    produce,
    share_requests,
)
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.headers import read_request_header, request_header
from tidemark.kafka.primitives import MalformedRequestError
from tidemark.model.topics import topic_name_problem

WAIT_MS_MAX: Final = 20
"""A fetch that asks for longer parks; nobody waits for its answer."""
REQUEST_BYTES_MAX: Final = 100 * 1024 * 1024
PARTITIONS_MAX: Final = 4
_LENGTH: Final = struct.Struct(">i")
_READ_REQUEST: Final = {
    ApiKey.PRODUCE: produce.read_produce_request,
    ApiKey.FETCH: fetch.read_fetch_request,
    ApiKey.LIST_OFFSETS: list_offsets.read_list_offsets_request,
    ApiKey.METADATA: metadata.read_metadata_request,
    ApiKey.API_VERSIONS: api_versions.read_api_versions_request,
    ApiKey.SHARE_FETCH: share_requests.read_share_fetch_request,
    ApiKey.SHARE_ACKNOWLEDGE: share_requests.read_share_acknowledge_request,
}
_READ_RESPONSE: Final = {
    ApiKey.PRODUCE: produce.read_produce_response,
    ApiKey.FETCH: fetch.read_fetch_response,
    ApiKey.LIST_OFFSETS: list_offsets.read_list_offsets_response,
    ApiKey.METADATA: metadata.read_metadata_response,
    ApiKey.API_VERSIONS: api_versions.read_api_versions_response,
}
_OLD_PRODUCE: Final = range(3)
_EXTREMES: Final = (
    b"\x7f\xff\xff\xff",
    b"\xff\xff\xff\xff",
    b"\x80\0\0\0",
    b"\0\0\0\0",
    b"\x7f\xff",
    b"\xff\xff\xff\xff\x0f",
    b"\xff\xff\xff\xff\xff\xff",
    b"\x80\x80\x80\x80\x80",
)
_RELAYED: Final = frozenset(
    {
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
    }
)
"""Their answer comes from the controller, some milliseconds each: drawn less often."""
_COSTLY: Final = frozenset({ApiKey.DESCRIBE_CONFIGS, ApiKey.LIST_CONFIG_RESOURCES})


class Verdict(Enum):
    """What the broker must do with a frame."""

    ANSWER = "answer it"
    CLOSE = "close the connection"
    EITHER = "answer it or close the connection"
    PARK = "hold it until its time or the client is gone"
    HARMFUL = "not to be sent: it would make or unmake what the test needs"


class Frame(NamedTuple):
    """One frame; ``data`` begins with its length. ``kind`` says who made it."""

    data: bytes
    verdict: Verdict
    kind: str
    api_key: int
    version: int
    correlation_id: int

    def __str__(self) -> str:
        name = ApiKey(self.api_key).name if self.api_key in set(ApiKey) else str(self.api_key)
        shown = self.data[:400].hex() + ("..." if len(self.data) > 400 else "")
        return f"{self.kind} {name} v{self.version} ({self.verdict.value}): {shown}"


class Frames:
    """All frames of one run, from one seed."""

    def __init__(
        self, dice: random.Random, world: World, served: Mapping[int, tuple[int, int]]
    ) -> None:
        """``served``: first and last version by API, as the broker says them."""
        self._dice = dice
        self._world = world
        self._served = served
        self._values = Values(dice, world)
        self._values.batch = HostileBatches(dice).draw
        self.pairs = [
            (key, version)
            for key, (first, last) in served.items()
            for version in range(first, last + 1)
            if (key, version) not in {(ApiKey.PRODUCE, old) for old in _OLD_PRODUCE}
        ]
        self._weights = list(accumulate(self._weight(key) for key, _ in self.pairs))
        self._number = 0
        self._kept = [self._fresh(pair) for pair in self.pairs]

    @staticmethod
    def _weight(key: int) -> float:
        if key in _RELAYED:
            return 0.1
        if key in _COSTLY:
            return 0.3
        return 3.0 if key in (ApiKey.PRODUCE, ApiKey.FETCH) else 1.0

    # -- the kinds

    def well_formed(self, pair: tuple[int, int] | None = None) -> Frame:
        """A request that can be read, with values that hurt."""
        fresh = self._fresh(pair or self._pair())
        self._kept[self._dice.randrange(len(self._kept))] = fresh
        return self._judged("well-formed", fresh)

    def mutated(self) -> Frame:
        """A good request with bits flipped, an end missing, a number extreme, or a piece of
        another in it.
        """
        dice = self._dice
        spoilt = bytearray(self._numbered(dice.choice(self._kept)))
        at = dice.randrange(4, len(spoilt))
        at = at - 4 if at < 8 else at  # the correlation id stays ours
        match dice.randrange(8):
            case 0 | 1 | 2:
                for _ in range(dice.randrange(1, 4)):
                    spoilt[at] ^= 1 << dice.randrange(8)
                    at = dice.randrange(8, len(spoilt))
            case 3:
                del spoilt[max(at, 8) :]
            case 4 | 5:
                extreme = dice.choice(_EXTREMES)
                at = max(at, 8)
                spoilt[at : at + len(extreme)] = extreme
            case 6:
                spoilt[max(at, 8) :] = dice.choice(self._kept)[8 + dice.randrange(8) :]
            case 7:
                spoilt[max(at, 8) : at] = dice.randbytes(dice.randrange(1, 20))
        return self._judged("mutated", bytes(spoilt))

    def noise(self) -> Frame:
        """Random bytes in a frame of right length, with or without a right header."""
        dice = self._dice
        data = dice.randbytes(dice.choice((8, 9, 20, 100, 5_000)))
        if dice.random() < 0.6:
            data = self._head(*dice.choice(self.pairs)) + data
        return self._judged("noise", data)

    def unknown_version(self) -> Frame:
        """An API or a version that the broker does not serve."""
        dice = self._dice
        key = dice.choice((*self._served, *ApiKey, -1, 93, 2**15 - 1, -(2**15)))
        version = dice.choice((-1, 0, 1, 2, 19, 99, 2**15 - 1, -(2**15)))
        return self._judged("unknown version", self._head(key, version) + dice.randbytes(12))

    def wrong_length(self) -> Frame:
        """A length that cannot be, before bytes that are a good request."""
        dice = self._dice
        data = dice.choice(self._kept)
        key, version = struct.unpack_from(">hh", data)
        size = dice.choice((-1, -(2**31), 0, 1, 7, REQUEST_BYTES_MAX + 1, 2**31 - 1, 0x16030100))
        return Frame(_LENGTH.pack(size) + data, Verdict.CLOSE, "wrong length", key, version, 0)

    def half_sent(self) -> Frame:
        """The beginning of a frame; the client then ends."""
        dice = self._dice
        data = dice.choice(self._kept)
        key, version = struct.unpack_from(">hh", data)
        size = dice.choice((len(data), len(data) + 1_000, 300_000, REQUEST_BYTES_MAX))
        whole = _LENGTH.pack(size) + data
        cut = whole[: dice.randrange(len(whole))]
        return Frame(cut, Verdict.CLOSE, "half sent", key, version, 0)

    # -- judging

    def _pair(self) -> tuple[int, int]:
        return self._dice.choices(self.pairs, cum_weights=self._weights)[0]

    def _fresh(self, pair: tuple[int, int]) -> bytes:
        """A new request, header and body."""
        body = self._values.request_body(*pair)
        return self._head(*pair) + (spoil_texts(body) if NOT_UTF8.encode() in body else body)

    def _numbered(self, data: bytes) -> bytes:
        """The same request under the next correlation id."""
        self._number = (self._number + 1) & 0x7FFF_FFFF
        return data[:4] + _LENGTH.pack(self._number) + data[8:]

    def _head(self, key: int, version: int) -> bytes:
        self._number = (self._number + 1) & 0x7FFF_FFFF
        client_id = self._dice.choice(("fuzz", None, "", "\U0001f4a3", "c" * 1_000))
        return request_header(key, version, self._number, client_id)

    def _judged(self, kind: str, data: bytes) -> Frame:
        verdict = self._verdict(data)
        key, version, correlation_id = struct.unpack_from(">hhi", data)
        return Frame(_LENGTH.pack(len(data)) + data, verdict, kind, key, version, correlation_id)

    def _verdict(self, data: bytes) -> Verdict:
        frame = memoryview(data)
        try:
            header = read_request_header(frame)
            key, version = header.api_key, header.api_version
            first, last = self._served.get(key, (0, -1))
            if not first <= version <= last or (key == ApiKey.PRODUCE and version in _OLD_PRODUCE):
                return Verdict.ANSWER if key == ApiKey.API_VERSIONS else Verdict.EITHER
            request = read_request(key, version, frame[header.body_position :])
        except MalformedRequestError:
            return Verdict.CLOSE
        return self._verdict_on_request(key, request)

    def _verdict_on_request(self, key: int, request: Any) -> Verdict:
        if key == ApiKey.PRODUCE and request.acks == 0:
            return Verdict.EITHER
        if key == ApiKey.FETCH and request.wait_ms_max > WAIT_MS_MAX and request.bytes_min > 0:
            return Verdict.PARK
        if key == ApiKey.SHARE_FETCH and request.wait_ms_max > WAIT_MS_MAX:
            return Verdict.PARK
        if key in (ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP):
            return Verdict.PARK  # until the other members have come
        return Verdict.ANSWER if self._is_harmless(key, request) else Verdict.HARMFUL

    def _is_harmless(self, key: int, request: Any) -> bool:
        """Only `World.disposable` may be changed, and no other topic be made."""
        match key:
            case ApiKey.METADATA:
                return not request.allow_auto_topic_creation or all(
                    self._is_ours(one.topic) for one in request.topics or ()
                )
            case ApiKey.CREATE_TOPICS:
                return request.validate_only or all(
                    self._is_ours(one.name) and self._is_small(one.num_partitions)
                    for one in request.topics
                )
            case ApiKey.CREATE_PARTITIONS:
                return request.validate_only or all(
                    one.name not in self._world.topics and self._is_small(one.count)
                    for one in request.topics
                )
            case ApiKey.DELETE_TOPICS:
                return not any(
                    one.name in self._world.topics or one.topic_id in self._world.topics.values()
                    for one in request.topics
                ) and not self._world.topics.keys() & set(request.topic_names)
            case ApiKey.ALTER_CONFIGS | ApiKey.INCREMENTAL_ALTER_CONFIGS:
                return request.validate_only or all(
                    one.resource_type == 2 and one.resource_name not in self._world.topics
                    for one in request.resources
                )
            case ApiKey.WRITE_TXN_MARKERS:
                return not any(
                    topic.name in self._world.topics
                    for marker in request.markers
                    for topic in marker.topics
                )
        return True

    def _is_ours(self, name: str | None) -> bool:
        return (
            not name
            or name in self._world.topics
            or name in self._world.disposable
            or topic_name_problem(name) is not None
        )

    @staticmethod
    def _is_small(partitions: int) -> bool:
        """Few, or far too many."""
        return partitions <= PARTITIONS_MAX or partitions > 1_000_000


def read_request(key: int, version: int, body: memoryview) -> Any:
    """A request as the broker reads it. Raises MalformedRequestError."""
    hot = _READ_REQUEST.get(ApiKey(key))
    return hot(body, version) if hot is not None else long_tail.read_request(key, version, body)


def read_response(key: int, version: int, body: memoryview) -> Any:
    """An answer as a client reads it. Raises MalformedRequestError."""
    hot = _READ_RESPONSE.get(ApiKey(key))
    return hot(body, version) if hot is not None else long_tail.read_response(key, version, body)
