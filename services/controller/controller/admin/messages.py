"""Messages: records of a topic from a place, as its leaders have them, and a record to write."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

from tidemark.client.config import MIB, ClientConfig
from tidemark.client.deadline import Deadline
from tidemark.client.errors import ClientError, error_for
from tidemark.client.producer.producer import Producer
from tidemark.client.wire.session import Session, SessionClient
from tidemark.client.wire.transport import FetchItem, FetchLimits, FetchOutcome
from tidemark.model.authorization import Operation, topic_resource
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from tidemark.runtime.clock import Clock

from controller.admin import topics
from controller.admin.broker_calls import CLIENT_ID
from controller.admin.context import AdminContext
from controller.admin.errors import AdminError, bad_value, from_cluster
from controller.admin.records import Fetched, Search, StoredRecord, read_fetched

LIMIT_MAX: Final = 1_000
_FETCH_BYTES: Final = MIB
_SCAN_BYTES_MAX: Final = 8 * MIB
"""Bytes of one partition that one read looks through."""
_SEARCHED_MAX: Final = 10_000
"""Offsets of one partition that a search for the newest records looks back."""
_PARTITIONS_AT_ONCE: Final = 16

SeekKind = Literal["latest", "earliest", "offset", "timestamp", "positions"]


@dataclass(frozen=True, slots=True)
class Seek:
    """Place to read from: the newest records, the oldest ones, an offset, a time in ms since 1970,
    or a position for each partition. The newest ones before ``positions``, where these are given.
    """

    kind: SeekKind = "latest"
    value: int = 0
    positions: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MessagesQuery:
    """Records to return: at most ``limit``, of one partition or of all."""

    seek: Seek = Seek()
    partition: int | None = None
    limit: int = 50
    search: Search = field(default_factory=Search)
    committed_only: bool = True
    """False: with records of open and aborted transactions, and markers."""


@dataclass(frozen=True, slots=True)
class Messages:
    """Records of a read. ``latest`` reads have the newest first, others the oldest."""

    records: Sequence[StoredRecord]
    positions: Mapping[int, int]
    """Position of each partition to go on from."""
    before: Mapping[int, int]
    """Offset of each partition below which all records are older; for ``latest`` reads."""
    scanned: int
    """Records looked at."""
    at_end: bool
    """True if no partition has more records."""
    problems: Mapping[int, str]
    """Partitions that could not be read, with the reason."""


@dataclass(slots=True)
class _Part:
    """Read of one partition."""

    partition: int
    began_at: int
    position: int
    end: int
    stable: int
    found: list[StoredRecord] = field(default_factory=list)
    scanned: int = 0
    problem: str | None = None


class _Reader(SessionClient):
    """Client that fetches from leaders once, without retries."""

    def __init__(self, addresses: Sequence[str], config: ClientConfig) -> None:
        self._clock = Clock()
        self._config = config
        self._session = Session(addresses, config, self._clock)

    async def fetch(
        self, partition: TopicPartition, offset: int, *, read_committed: bool
    ) -> FetchOutcome:
        """Return what the leader has at an offset. Raises ClientError."""
        deadline = Deadline.after(self._config.request_timeout_ms, self._clock.now_ms())
        await self._session.cluster.topic(partition.topic, deadline)
        leader = self._session.cache.leader(partition)
        if leader is None:
            raise error_for(ErrorCode.LEADER_NOT_AVAILABLE, f"{partition} has no leader")
        item = FetchItem(partition, leader.topic_id, leader.leader_epoch, offset)
        limits = FetchLimits(0, 0, _FETCH_BYTES, _FETCH_BYTES, read_committed)
        transport = self._session.transport
        for outcome in await transport.fetch(leader.broker_id, [item], limits):
            if outcome.error_code:
                what = f"reading {partition} from offset {offset} failed"
                raise error_for(outcome.error_code, what, where=transport.where(leader.broker_id))
            return outcome
        raise error_for(
            ErrorCode.UNKNOWN_SERVER_ERROR, f"the answer to a fetch leaves {partition} out"
        )


async def read(ctx: AdminContext, topic: str, query: MessagesQuery) -> Messages:
    """Return records of a topic. A partition whose leader is late is a problem of its own. Raises
    AdminError for an unknown topic or partition.
    """
    ctx.require(Operation.READ, topic_resource(topic))
    known = ctx.topic(topic)
    limit = max(1, min(query.limit, LIMIT_MAX))
    if query.partition is not None:
        topics.require_partition(ctx, topic, query.partition)
    numbers = (
        [one.partition for one in known.partitions]
        if query.partition is None
        else [query.partition]
    )
    look_back = _SEARCHED_MAX if query.search.text else limit
    parts, problems = await _places(ctx, topic, numbers, query.seek, look_back)
    timeout_ms = 2 * ctx.brokers.timeout_ms
    config = ClientConfig(
        client_id=CLIENT_ID,
        request_timeout_ms=timeout_ms,
        connections_setup_timeout_ms=timeout_ms,
        unknown_topic_grace_ms=1,
        **ctx.brokers.kafka_security,
    )
    slots = asyncio.Semaphore(_PARTITIONS_AT_ONCE)
    async with ctx.shared.message_clients, _Reader(ctx.brokers.bootstrap(), config) as reader:

        async def one(part: _Part) -> None:
            async with slots:
                await _read_part(reader, topic, part, query, limit, timeout_ms)

        await asyncio.gather(*map(one, parts))
    problems.update({part.partition: part.problem for part in parts if part.problem is not None})
    return _merged(parts, problems, newest_first=query.seek.kind == "latest", limit=limit)


async def _places(
    ctx: AdminContext, topic: str, numbers: Sequence[int], seek: Seek, look_back: int
) -> tuple[list[_Part], dict[int, str]]:
    """Return where to begin in each partition, and the partitions that are not known."""
    bounds = await topics.offsets(ctx, [(topic, number) for number in numbers])
    times: Mapping[int, int | str] = {}
    if seek.kind == "timestamp":
        times = await _at_time(ctx, topic, numbers, seek.value)
    parts: list[_Part] = []
    problems: dict[int, str] = {}
    for number in numbers:
        known = bounds[topic, number]
        start, end = known.earliest_offset, known.latest_offset
        if start is None or end is None:
            problems[number] = known.problem or "its offsets are not known"
            continue
        if seek.kind == "latest":
            end = max(start, min(end, seek.positions.get(number, end)))
        wanted = _wanted(seek, number, start, end, look_back, times)
        if isinstance(wanted, str):
            problems[number] = wanted
            continue
        stable = known.last_stable_offset
        place = max(start, wanted)
        parts.append(_Part(number, place, place, end, min(end, end if stable is None else stable)))
    return parts, problems


def _wanted(
    seek: Seek, number: int, start: int, end: int, look_back: int, times: Mapping[int, int | str]
) -> int | str:
    match seek.kind:
        case "latest":
            return end - look_back
        case "earliest":
            return start
        case "offset":
            return seek.value
        case "positions":
            return seek.positions.get(number, end)
        case "timestamp":
            found = times.get(number, "the time could not be looked up")
            return end if found == -1 else found


async def _at_time(
    ctx: AdminContext, topic: str, numbers: Sequence[int], timestamp_ms: int
) -> dict[int, int | str]:
    by_leader: dict[int, list[tuple[str, int]]] = {}
    for number in numbers:
        leader: int = ctx.topic(topic).partitions[number].leader
        by_leader.setdefault(leader, []).append((topic, number))
    answers = await ctx.each(
        [leader for leader in by_leader if leader >= 0],
        lambda leader: topics.lookup_at(ctx, leader, by_leader[leader], timestamp_ms),
    )
    found: dict[int, int | str] = {}
    for at, group in by_leader.items():
        answer = answers.get(at)
        for name, number in group:
            if isinstance(answer, dict):
                found[number] = answer.get((name, number), "the leader did not report it")
            elif isinstance(answer, AdminError):
                found[number] = answer.message
            else:
                found[number] = "the partition has no leader"
    return found


async def _read_part(
    reader: _Reader, topic: str, part: _Part, query: MessagesQuery, limit: int, timeout_ms: int
) -> None:
    """Fetch until there are enough records, or nothing is left, or enough has been looked at."""
    end = part.stable if query.committed_only else part.end
    partition = TopicPartition(topic, part.partition)
    newest = query.seek.kind == "latest"
    scanned_bytes = 0
    try:
        async with asyncio.timeout(timeout_ms / 1_000):
            while part.position < end and scanned_bytes < _SCAN_BYTES_MAX:
                if len(part.found) >= limit and not newest:
                    break
                scanned_bytes += await _fetch_once(reader, partition, part, query, end)
    except TimeoutError:
        part.problem = f"its leader did not answer within {timeout_ms} ms"
    except ClientError as problem:
        part.problem = problem.message


async def _fetch_once(
    reader: _Reader, partition: TopicPartition, part: _Part, query: MessagesQuery, end: int
) -> int:
    """Take the records of one fetch. Return its size in bytes."""
    stable = part.position < part.stable
    outcome = await reader.fetch(partition, part.position, read_committed=stable)
    fetched = Fetched(
        partition.topic, part.partition, outcome.records, part.stable, outcome.aborted
    )
    rows, read_to = await asyncio.to_thread(read_fetched, fetched, part.position, end)
    if read_to <= part.position:
        # Nothing is left below the end: compaction has removed the last records.
        part.position = min(end, part.stable) if stable else end
        return 0
    part.scanned += len(rows)
    hidden = ("aborted", "marker", "open") if query.committed_only else ()
    part.found += [row for row in rows if row.state not in hidden and query.search.matches(row)]
    part.position = read_to
    return len(outcome.records)


def _merged(
    parts: Sequence[_Part], problems: Mapping[int, str], *, newest_first: bool, limit: int
) -> Messages:
    rows = [row for part in parts for row in part.found]
    rows.sort(key=lambda row: (row.timestamp_ms, row.partition, row.offset), reverse=newest_first)
    shown = rows[:limit]
    positions = {part.partition: part.position for part in parts}
    before = {part.partition: part.began_at for part in parts}
    for row in rows[limit:]:
        before[row.partition] = max(before[row.partition], row.offset + 1)
    if not newest_first:
        # Go on at the first record of a partition that did not fit.
        for row in reversed(rows[limit:]):
            positions[row.partition] = min(positions[row.partition], row.offset)
    at_end = all(positions[part.partition] >= min(part.end, part.stable) for part in parts)
    return Messages(shown, positions, before, sum(part.scanned for part in parts), at_end, problems)


@dataclass(frozen=True, slots=True)
class NewRecord:
    """Record to write. Without a partition the key selects it, as Kafka's clients do."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


async def produce(ctx: AdminContext, topic: str, record: NewRecord) -> tuple[int, int]:
    """Write one record with acks=all. Return its partition and offset. Raises AdminError."""
    ctx.require(Operation.WRITE, topic_resource(topic))
    if record.partition is not None:
        topics.require_partition(ctx, topic, record.partition)
    if topics.is_internal(ctx.topic(topic).name):
        raise bad_value(f"{topic} is written by brokers and coordinators only", field="topic_name")
    try:
        async with (
            ctx.shared.message_clients,
            Producer(
                ctx.brokers.bootstrap(),
                client_id=CLIENT_ID,
                request_timeout_ms=ctx.brokers.change_ms,
                delivery_timeout_ms=ctx.brokers.change_ms + 1_000,
                allow_auto_create_topics=False,
                **ctx.brokers.kafka_security,
            ) as producer,
        ):
            written = await producer.send(
                topic,
                record.value,
                record.key,
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
                headers=list(record.headers),
            )
    except ClientError as problem:
        raise from_cluster(problem) from None
    return written.partition, written.offset
