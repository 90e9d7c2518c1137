"""Fetch requests of consumers: read up to the high watermark, perhaps wait, answer."""

from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple

from tidemark.kafka.fetch import (
    FetchPartition,
    FetchPartitionResult,
    FetchRequest,
    write_fetch_response_parts,
)
from tidemark.kafka.headers import RequestHeader
from tidemark.model.authorization import Operation, topic_resource
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs, TopicId
from tidemark.runtime.metadata_cache import MetadataCache

from broker.core.fetch_sessions import CachedPartition, FetchPlan, FetchSessions, PartitionKey
from broker.core.parked import READ
from broker.shell.counters import BrokerCounters
from broker.shell.facts import BrokerFacts
from broker.shell.kafka import leader_hints
from broker.shell.listener.connection import Connection
from broker.shell.listener.replies import Part, Reply, weave
from broker.shell.partitions.hosted import HostedPartition, ReadOutcome
from broker.shell.partitions.parking_lot import ParkingLot
from broker.shell.partitions.read_replicas import ReadReplicas
from broker.shell.partitions.reader import PartitionReader
from broker.shell.partitions.table import PartitionTable
from broker.shell.replication.replica_reader import ReplicaReader

READ_COMMITTED: Final = 1
STORAGE_ERROR_FROM: Final = 6
"""First version whose clients know KAFKA_STORAGE_ERROR, and look for another leader then."""
LEADER_FROM: Final = 12
_NOTHING: Final = ReadOutcome(ErrorCode.NONE, None, -1, -1, -1)
_EMPTY: Final[list[tuple[int, int]]] = []


@dataclass(frozen=True, slots=True)
class FetchParts:
    """Parts of the broker that Fetch requests use."""

    facts: BrokerFacts
    metadata: MetadataCache
    table: PartitionTable
    reader: PartitionReader
    replica_reader: ReplicaReader
    parked: ParkingLot
    fetch_sessions: FetchSessions[FetchPartition]
    counters: BrokerCounters
    read_replicas: ReadReplicas | None
    """Followers that consumers may read from; None: consumers read from leaders alone."""


class Read(NamedTuple):
    """Result of one partition."""

    key: PartitionKey
    hosted: HostedPartition | None
    outcome: ReadOutcome
    cached: CachedPartition[FetchPartition] | None


class Reads(NamedTuple):
    """Results of partitions, without those that are now idle in the session: ``size_bytes`` of
    records, and whether any failed (or has news that must not wait). ``missing_bytes``: less than
    the request wants are there, by so many; 0 or less: enough.
    """

    reads: list[Read]
    size_bytes: int
    failed: bool
    missing_bytes: int


def _old(error_code: ErrorCode) -> ErrorCode:
    """Return the error as versions have it that do not know KAFKA_STORAGE_ERROR."""
    is_storage_error = error_code is ErrorCode.KAFKA_STORAGE_ERROR
    return ErrorCode.NOT_LEADER_OR_FOLLOWER if is_storage_error else error_code


class Fetch:
    """One fetch request on its way to its answer."""

    __slots__ = ("_connection", "_header", "_parts", "_plan", "_request")
    parked_as: ClassVar[int] = READ
    looks_again: ClassVar[bool] = False
    """True if a wake does not say whether enough became readable."""

    def __init__(
        self,
        parts: FetchParts,
        connection: Connection,
        header: RequestHeader,
        request: FetchRequest,
        plan: FetchPlan[FetchPartition],
    ) -> None:
        self._parts = parts
        self._connection = connection
        self._header = header
        self._request = request
        self._plan = plan

    def start(self) -> None:
        """Read now; answer now, or park until there is enough or the wait has ended."""
        reads = self.first_read()
        wait_ms = self._wait_ms(reads)
        if wait_ms <= 0 or self._plan.is_empty:
            self._connection.answer_parts(self._header, self.answer(reads))
        else:
            self._park(
                self._connection.later(self._header),
                reads,
                InstantMs(self._parts.facts.clock.now_ms() + wait_ms),
            )

    def first_read(self) -> Reads:
        """Return what the request finds when it arrives."""
        return self.read()

    def _wait_ms(self, reads: Reads) -> int:
        """Return for how long the request waits for more than this."""
        is_enough = reads.missing_bytes <= 0 or reads.failed
        return 0 if is_enough else self._request.wait_ms_max

    def read(self) -> Reads:
        """Read every partition that may have something new, in order, up to the request's bytes;
        the first one with records always gives some.
        """
        parts, request, plan = self._parts, self._request, self._plan
        left = min(request.bytes_max, parts.facts.config.fetch_max_bytes)
        if parts.facts.quotas.limits_fetch:
            left = self._within_quota(left)
        missing_bytes = min(request.bytes_min, max(left, 1))
        allowed = self._allowed()
        reads: list[Read] = []
        size_bytes, failed = 0, False
        for key, want, cached in plan.looks():
            topic, topic_id, partition = key
            refused = allowed(topic, topic_id)
            hosted = refused or parts.table.find(topic, topic_id, partition)
            if isinstance(hosted, ErrorCode):
                failed = True
                reads.append(Read(key, None, _NOTHING._replace(error_code=hosted), cached))
                continue
            room = want.bytes_max if want.bytes_max < left else max(0, left)
            outcome = self._read_one(hosted, want, room)
            found = outcome.read
            if found is not None:
                missing_bytes -= found.length_bytes
                if missing_bytes > 0 and found.length_bytes:
                    missing_bytes -= self._left_behind(hosted, want, room, found.length_bytes)
                # Storage returns a first batch whole, however large; that is for the first
                # partition with records alone.
                if size_bytes and found.length_bytes > left:
                    outcome = outcome._replace(read=None)
                else:
                    size_bytes += found.length_bytes
                    left -= found.length_bytes
            elif (
                outcome.error_code
                or outcome.diverging is not None
                or outcome.preferred_replica >= 0
            ):
                failed = True
            elif (
                cached is not None
                and self._rests(hosted, want, cached, outcome)
                and parts.fetch_sessions.mark_idle(cached, self._watched(hosted))
                and plan.incremental
            ):
                continue
            # A NamedTuple's own constructor takes twice as long.
            reads.append(tuple.__new__(Read, (key, hosted, outcome, cached)))
        return Reads(reads, size_bytes, failed, missing_bytes)

    def _left_behind(
        self, hosted: HostedPartition, want: FetchPartition, room: int, read_bytes: int
    ) -> int:
        """Return the bytes of ``room`` that a read left free though there is more, for want of room
        for another whole batch. They count as read: no wait makes them fit.
        """
        if read_bytes >= room:
            return 0
        # Of this a read returns as much as the room, at least, if it is there.
        found = self._read_one(hosted, want, 2 * (room + hosted.log.config.max_message_bytes)).read
        return 0 if found is None else max(min(found.length_bytes, room) - read_bytes, 0)

    def _within_quota(self, bytes_max: int) -> int:
        """Return how many bytes the quota allows in one answer."""
        principal, client_id = self._connection.requester.principal, self._header.client_id
        return self._parts.facts.quotas.fetch_bytes_max(principal, client_id, bytes_max)

    def _rests(
        self,
        hosted: HostedPartition,
        want: FetchPartition,
        cached: CachedPartition[FetchPartition],
        outcome: ReadOutcome,
    ) -> bool:
        """True if the partition can stay idle until notified, after a read without records and
        errors.
        """
        return cached.was_sent(outcome.high_watermark, outcome.log_start)

    def _read_one(
        self, hosted: HostedPartition, want: FetchPartition, bytes_max: int
    ) -> ReadOutcome:
        return self._parts.reader.read(
            hosted,
            want.fetch_offset,
            bytes_max=bytes_max,
            read_committed=self._request.isolation_level == READ_COMMITTED,
            leader_epoch_expected=want.current_leader_epoch,
        )

    def _watched(self, hosted: HostedPartition) -> Hashable:
        """Return the key that is notified when there is more to read."""
        return hosted

    def _waits_as(self) -> tuple[Hashable, ...]:
        """Return keys that end the wait besides bytes."""
        return ()

    def _allowed(self) -> Callable[[str, bytes], ErrorCode | None]:
        """Return the authorization of a topic as a function that checks each topic once, not each
        partition.
        """
        known: dict[tuple[str, bytes], ErrorCode | None] = {}
        parts, requester = self._parts, self._connection.requester

        def ask(topic: str, topic_id: bytes) -> ErrorCode | None:
            if (topic, topic_id) in known:
                return known[topic, topic_id]
            name = topic
            if not name:
                image = parts.metadata.image.topics_by_id.get(TopicId(topic_id))
                name = image.name if image is not None else ""
            refused = None
            if name and not parts.facts.authorizer.authorize(
                requester, Operation.READ, topic_resource(name)
            ):
                refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            known[topic, topic_id] = refused
            return refused

        return ask

    def _park(self, reply: Reply, reads: Reads, due: InstantMs) -> None:
        """Wait for bytes. Without room to wait the request is answered as it is."""
        parts, connection, request = self._parts, self._connection, self._request
        committed_only, session = request.isolation_level == READ_COMMITTED, self._plan.session
        # Neither a marker, a session nor a follower says how many bytes became readable.
        looks_again = committed_only or session is not None or self.looks_again

        def wake(fulfilled: bool) -> None:  # noqa: FBT001 - what is there is answered either way
            reply.on_gone = None
            # Not from inside the append that woke the request: the append's own answer goes first,
            # and a request that appends to several partitions wakes this one once.
            connection.listener.loop.call_soon(finish, fulfilled)

        def finish(fulfilled: bool) -> None:  # noqa: FBT001
            if connection.closed:
                return
            found = self.read()
            if looks_again and fulfilled and self._must_wait_on(found, due):
                self._park(reply, found, due)
            else:
                reply.send(self.answer(found))

        now = parts.facts.clock.now_ms()
        waits_for: list[Hashable] = [*self._waits_as()]
        if session is not None:
            waits_for.append(session)
        waits_for += [self._watched(one.hosted) for one in reads.reads if one.hosted is not None]
        parked = parts.parked.requests.park_fetch(
            waits_for,
            # A marker can make more readable than was appended: look at every move.
            bytes_missing=1 if committed_only else reads.missing_bytes,
            now=now,
            wait_ms=max(0, due - now),
            wake=wake,
            kind=self.parked_as,
        )
        if parked is None:
            finish(False)  # noqa: FBT003
            return
        waiting = parked
        reply.on_gone = lambda: parts.parked.requests.cancel(waiting)

    def _must_wait_on(self, reads: Reads, due: InstantMs) -> bool:
        """True if something moved, but too little became readable."""
        enough = reads.missing_bytes <= 0 or reads.failed
        return not enough and self._parts.facts.clock.now_ms() < due

    def answer(self, reads: Reads) -> list[Part]:
        """Return the response's pieces with the records' slices between them."""
        parts, version = self._parts, self._header.api_version
        session = self._plan.session
        topics: list[tuple[str, bytes, list[FetchPartitionResult]]] = []
        slices: list[tuple[Part, ...]] = []
        leaders: set[int] = set()
        served: list[PartitionKey] = []
        has_failed = False
        none_aborted = _EMPTY if self._request.isolation_level == READ_COMMITTED else None
        for key, hosted, outcome, cached in reads.reads:
            (
                error_code,
                found,
                high_watermark,
                last_stable,
                log_start,
                diverging,
                aborted,
                preferred,
            ) = outcome
            size = found.length_bytes if found is not None else 0
            self._count(hosted, size, error_code)
            has_failed |= bool(error_code)
            if cached is not None:
                changed = cached.must_answer(error_code, high_watermark, log_start, size)
                if size:
                    served.append(key)
                if not changed and self._plan.incremental and diverging is None and preferred < 0:
                    continue
            leader = None
            if error_code and error_code in leader_hints.HINTED and version >= LEADER_FROM:
                leader = leader_hints.current_leader(parts.metadata, *key)
                if leader is not None:
                    leaders.add(leader[0])
            result = tuple.__new__(
                FetchPartitionResult,
                (
                    key[2],
                    error_code if version >= STORAGE_ERROR_FROM else _old(error_code),
                    high_watermark,
                    last_stable,
                    log_start,
                    diverging,
                    leader,
                    aborted or none_aborted,
                    preferred,
                    size,
                ),
            )
            if topics and topics[-1][0] == key[0] and topics[-1][1] == key[1]:
                topics[-1][2].append(result)
            else:
                topics.append((key[0], key[1], [result]))
            slices.append(found.slices if found is not None else ())
        if session is not None:
            session.served(served)
        parts.counters.request_errors[self._header.api_key] += has_failed
        pieces = write_fetch_response_parts(
            version,
            throttle_time_ms=self._throttle(reads.size_bytes),
            session_id=session.session_id if session is not None else 0,
            topics=topics,
            node_endpoints=leader_hints.endpoints(
                parts.metadata, self._connection.listener.name, leaders
            )
            if leaders
            else (),
        )
        return weave(pieces, slices)

    def _count(self, hosted: HostedPartition | None, size: int, error_code: ErrorCode) -> None:
        if hosted is None:
            return
        counters = hosted.counters
        counters.fetches += 1
        counters.bytes_out += size
        if error_code:
            counters.failed_fetches += 1

    def _throttle(self, size_bytes: int) -> int:
        quotas = self._parts.facts.quotas
        if not quotas.limits_fetch and not quotas.limits_requests:
            return 0
        client = self._connection.requester.principal, self._header.client_id
        throttle_ms = quotas.fetched(*client, size_bytes)
        self._connection.mute(throttle_ms)
        return max(throttle_ms, quotas.request_ms(*client))
