"""Produce (0), versions 3 to 13: append inside the connection's callback, answer now or when it is
committed.
"""

from typing import Final, NamedTuple

from tidemark.codec.record_batch import (
    COMPRESSION_MASK,
    CRC_START,
    HEADER_BYTES,
)
from tidemark.kafka import produce_repeated
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.headers import RequestHeader
from tidemark.kafka.primitives import NodeEndpoint
from tidemark.kafka.produce import (
    ProducePartitionResult,
    ProduceRequest,
    ProduceTopicResult,
    read_produce_request,
    write_produce_response,
)
from tidemark.kafka.produce_repeated import RepeatedProduce
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs, TopicId
from tidemark.model.topics import INTERNAL_TOPICS

from broker.core.authorizer import Operation, topic_resource
from broker.shell.kafka import leader_hints
from broker.shell.kafka.produce_parts import ProduceParts
from broker.shell.listener.connection import Connection
from broker.shell.listener.replies import Reply
from broker.shell.partitions.commit_wait import CommitWait
from broker.shell.partitions.hosted import AppendOutcome, HostedPartition
from broker.shell.partitions.inspection import InspectedAppend, must_inspect
from broker.shell.transactions.verified_append import VerifiedAppend, must_verify

ZSTD: Final = 4
ZSTD_FROM: Final = 7
HINTS_FROM: Final = 10
TRANSACTIONS_V2_FROM: Final = 12
"""The partition leader adds the partition to the transaction (KIP-890)."""
ABORTABLE_KNOWN_FROM: Final = 11
"""Clients know TRANSACTION_ABORTABLE (KIP-890)."""
REPEATED_MAX: Final = 256
"""Partitions that one connection produces to and that are recognised by their first bytes."""
NO_ERROR: Final = int(ErrorCode.NONE)
_RECORD_REFUSED: Final = "the record has no key, which a compacted topic needs"


def handle(
    parts: ProduceParts, connection: Connection, header: RequestHeader, body: memoryview
) -> None:
    """Append what the request brings and answer it, now or when it is committed."""
    if parts.parked.requests.is_full and _may_wait(
        parts, read_produce_request(body, header.api_version)
    ):
        parts.counters.requests[ApiKey.PRODUCE] -= 1  # it is counted again when it is taken
        connection.put_back(parts.parked.requests)
        return
    prefix_bytes = connection.produce_prefix_bytes
    if prefix_bytes and len(body) > prefix_bytes and not parts.facts.quotas.enabled:
        known = connection.repeated_produces.get(bytes(body[:prefix_bytes]))
        if known is not None and known.version == header.api_version:
            records = produce_repeated.records_behind(body, prefix_bytes)
            if records is not None:
                _handle_repeated(parts, connection, header, known, records)
                return
    request = read_produce_request(body, header.api_version)
    if request.transactional_id is None:
        _remember(connection, header.api_version, request)
    _handle_request(parts, connection, header, request, len(body))


def _may_wait(parts: ProduceParts, request: ProduceRequest) -> bool:
    """Whether the answer may have to wait for what is not known before the append."""
    for topic, topic_id, partitions in request.topics:
        for partition, _ in partitions:
            hosted = parts.table.find(topic, topic_id, partition)
            if not isinstance(hosted, ErrorCode) and hosted.partition.commitment.may_wait(
                request.acks
            ):
                return True
    return False


def _remember(connection: Connection, version: int, request: ProduceRequest) -> None:
    """Recognise the next request of the same kind by its first bytes."""
    learnt = produce_repeated.learn(request, version)
    if learnt is None:
        return
    prefix, known = learnt
    if len(prefix) != connection.produce_prefix_bytes or (
        len(connection.repeated_produces) >= REPEATED_MAX
    ):
        connection.repeated_produces.clear()
        connection.produce_prefix_bytes = len(prefix)
    connection.repeated_produces[prefix] = known


def _handle_repeated(
    parts: ProduceParts,
    connection: Connection,
    header: RequestHeader,
    known: RepeatedProduce,
    records: memoryview,
) -> None:
    """As ``_handle_request``, for one batch for a partition that was asked for before."""
    version, acks, timeout_ms, topic, topic_id, partition, _ = known
    hosted = parts.table.find(topic, topic_id, partition)
    if (
        isinstance(hosted, ErrorCode)
        or hosted.is_internal
        or not parts.facts.authorizer.authorize(
            connection.principal, Operation.WRITE, hosted.resource
        )
    ):
        hosted = _topic_refused(parts, connection, topic, topic_id) or hosted
    if not isinstance(hosted, ErrorCode) and _is_usual(hosted, records, version):
        hosted.counters.produces += 1
        outcome = parts.appender.append_batch(hosted, records, acks, parts.facts.clock.wall_ms())
        error_code, base_offset, _, append_ms, log_start, must_wait, _, _ = outcome
        if not error_code and not must_wait:
            connection.answer(
                header, produce_repeated.write_answer(known, base_offset, append_ms, log_start)
            )
            return
    else:
        outcome = None
    results: list[ProducePartitionResult] = []
    request = ProduceRequest(None, acks, timeout_ms, [])
    produce = _Produce(parts, connection, header, request, [(topic, topic_id, results)])
    if outcome is None or isinstance(hosted, ErrorCode):
        produce.take_unusual(hosted, partition, records, results)
    else:
        produce.note(outcome, hosted, results)
        results.append(_result(outcome, partition))
    produce.finish(0)


def _handle_request(
    parts: ProduceParts,
    connection: Connection,
    header: RequestHeader,
    request: ProduceRequest,
    size_bytes: int,
) -> None:
    """Append every partition's batch, in the order of the request.

    Usually every batch is appended and committed at once; what else may come is ``_Produce``'s.
    """
    version = header.api_version
    acks, now_ms = request.acks, parts.facts.clock.wall_ms()
    topics: list[ProduceTopicResult] = []
    produce: _Produce | None = None
    transactional = request.transactional_id is not None
    for topic, topic_id, partitions in request.topics:
        results: list[ProducePartitionResult] = []
        topics.append((topic, topic_id, results))
        refused = _topic_refused(parts, connection, topic, topic_id)
        for partition, records in partitions:
            hosted = refused or parts.table.find(topic, topic_id, partition)
            if (
                isinstance(hosted, ErrorCode)
                or not _is_usual(hosted, records, version)
                or (transactional and records is not None and must_verify(hosted, records))
            ):
                produce = produce or _Produce(parts, connection, header, request, topics)
                produce.take_unusual(hosted, partition, records, results)
                continue
            hosted.counters.produces += 1
            assert records is not None, "checked by _is_usual"
            outcome = parts.appender.append_batch(hosted, records, acks, now_ms)
            error_code, base_offset, _, append_ms, log_start, must_wait, message, _ = outcome
            if error_code or must_wait:
                produce = produce or _Produce(parts, connection, header, request, topics)
                produce.note(outcome, hosted, results)
            results.append(
                ProducePartitionResult(
                    partition, error_code, base_offset, append_ms, log_start, message
                )
            )
    throttle_ms = _throttle(parts, connection, size_bytes) if parts.facts.quotas.enabled else 0
    if produce is not None:
        produce.finish(throttle_ms)
    elif acks != 0:
        connection.answer(header, write_produce_response(version, topics, throttle_ms))


def _is_usual(hosted: HostedPartition, records: memoryview | None, version: int) -> bool:
    """Whether the batch may go straight into the log: almost always."""
    return (
        records is not None
        and version >= ZSTD_FROM
        and not hosted.turns
        and (hosted.rule is None or not must_inspect(hosted, records, None))
    )


def _throttle(parts: ProduceParts, connection: Connection, size_bytes: int) -> int:
    throttle_ms = parts.facts.quotas.produced(
        connection.principal, size_bytes, parts.facts.clock.now_ms()
    )
    connection.mute(throttle_ms)
    return throttle_ms


class _Wait(NamedTuple):
    """An append that is not committed yet, and where its result stands."""

    commit: CommitWait
    results: list[ProducePartitionResult]
    place: int

    def fail(self, error_code: ErrorCode) -> None:
        """Its result is an error."""
        partition = self.results[self.place].partition
        self.results[self.place] = ProducePartitionResult(partition, int(error_code))


class _Produce:
    """One request on its way to its answer: appended, then (``waits``) committed."""

    __slots__ = (
        "_connection",
        "_due",
        "_failed",
        "_header",
        "_parts",
        "_reply",
        "_request",
        "_throttle_ms",
        "_topics",
        "_waits",
        "_working",
    )

    def __init__(
        self,
        parts: ProduceParts,
        connection: Connection,
        header: RequestHeader,
        request: ProduceRequest,
        topics: list[ProduceTopicResult],
    ) -> None:
        self._parts = parts
        self._connection = connection
        self._header = header
        self._request = request
        self._topics = topics
        self._reply: Reply | None = None
        self._waits: list[_Wait] = []
        self._due = InstantMs(parts.facts.clock.now_ms() + request.timeout_ms)
        self._working = 0
        self._failed = False
        self._throttle_ms = 0

    def take_unusual(
        self,
        hosted: HostedPartition | ErrorCode,
        partition: int,
        records: memoryview | None,
        results: list[ProducePartitionResult],
    ) -> None:
        """A partition that is not here, a batch that is refused, old or for a worker."""
        if isinstance(hosted, ErrorCode):
            self._failed = True
            results.append(ProducePartitionResult(partition, int(hosted)))
            return
        hosted.counters.produces += 1
        problem = _records_refused(records, self._header.api_version)
        if problem is not None:
            self._failed = True
            hosted.counters.failed_produces += 1
            results.append(problem._replace(partition=partition))
            return
        assert records is not None
        work = self._detour(hosted, records)
        if work is not None:
            results.append(ProducePartitionResult(partition, NO_ERROR))
            self._run(work, hosted, results)
            return
        outcome = self._parts.appender.append_batch(
            hosted, records, self._request.acks, self._parts.facts.clock.wall_ms()
        )
        self.note(outcome, hosted, results)
        results.append(_result(outcome, partition))

    def note(
        self,
        outcome: AppendOutcome,
        hosted: HostedPartition,
        results: list[ProducePartitionResult],
    ) -> None:
        """Remember a failure, or what must be waited for; its result is the next of ``results``."""
        if outcome.error_code:
            self._failed = True
        elif outcome.must_wait:
            self._waits.append(_Wait(CommitWait.of(hosted, outcome.end), results, len(results)))

    def _detour(
        self, hosted: HostedPartition, records: memoryview
    ) -> VerifiedAppend | InspectedAppend | None:
        """An append that the coordinator or a worker must see first takes its turn now, in the
        order of requests.
        """
        acks, transactional_id = self._request.acks, self._request.transactional_id
        if transactional_id is not None and must_verify(hosted, records):
            return VerifiedAppend(
                self._parts.verifier,
                self._parts.inspection,
                hosted,
                bytes(records),
                acks=acks,
                lane=self._connection,
                transactional_id=transactional_id,
                transactions_v2=self._header.api_version >= TRANSACTIONS_V2_FROM,
                abortable_known=self._header.api_version >= ABORTABLE_KNOWN_FROM,
            )
        if must_inspect(hosted, records, self._connection):
            return InspectedAppend(
                self._parts.inspection, hosted, bytes(records), acks=acks, lane=self._connection
            )
        return None

    def _run(
        self,
        work: VerifiedAppend | InspectedAppend,
        hosted: HostedPartition,
        results: list[ProducePartitionResult],
    ) -> None:
        """A task does the work."""
        self._working += 1
        self._connection.order.append_began()
        index = len(results) - 1

        async def run() -> None:
            outcome = await work.run()
            results[index] = _result(outcome, results[index].partition)
            self._failed = self._failed or outcome.error_code != ErrorCode.NONE
            if outcome.must_wait:
                self._waits.append(_Wait(CommitWait.of(hosted, outcome.end), results, index))
            self._working -= 1
            if not self._working:
                self._settle()
            self._connection.append_ended()

        self._connection.start(run())

    def finish(self, throttle_ms: int) -> None:
        """Every partition was taken: answer, or hold the answer's place until it can be given."""
        self._throttle_ms = throttle_ms
        if self._failed:
            self._parts.counters.request_errors[ApiKey.PRODUCE] += 1
        if self._working or self._waits:
            self._reply = self._connection.later(self._header)
            if not self._working:
                self._settle()
        elif self._request.acks != 0:
            self._connection.answer(self._header, self._body())
        elif self._failed:
            self._connection.close("a produce with acks=0 failed")

    def _settle(self) -> None:
        """All is appended: answer, or park until it is committed."""
        self._judge_lost()
        self._waits = [wait for wait in self._waits if not wait.commit.is_committed]
        if self._request.acks == 0 or not self._waits or not self._park():
            self._finish_waiting()

    def _judge_lost(self) -> None:
        """What was appended under a leadership that is over is not ours to acknowledge."""
        for wait in self._waits:
            if wait.commit.is_lost:
                self._failed = True
                wait.fail(wait.commit.failure())
        self._waits = [wait for wait in self._waits if not wait.commit.is_lost]

    def _park(self) -> bool:
        """False when there is no room or no time left."""
        parts = self._parts
        now = parts.facts.clock.now_ms()
        if now >= self._due:
            return False
        parked = parts.parked.requests.park_produce(
            [(wait.commit.hosted, wait.commit.end) for wait in self._waits],
            now=now,
            wait_ms=self._due - now,
            wake=self._woken,
        )
        if parked is not None and self._reply is not None:
            self._reply.on_gone = lambda: parts.parked.requests.cancel(parked)
        return parked is not None

    def _woken(self, fulfilled: bool) -> None:  # noqa: FBT001 - Parked's callback
        """Committed, too late, or one partition's leadership is lost: the others are waited for
        on.
        """
        if fulfilled:
            self._waits = []
        self._judge_lost()
        self._waits = [wait for wait in self._waits if not wait.commit.is_committed]
        if not self._waits or self._connection.closed or not self._park():
            self._finish_waiting()

    def _finish_waiting(self) -> None:
        for wait in self._waits:
            wait.fail(wait.commit.failure())
        self._send()

    def _send(self) -> None:
        assert self._reply is not None
        if self._connection.closed:
            return
        if self._request.acks != 0:
            self._reply.send([self._body()])
        elif self._failed:
            self._reply.close()
        else:
            self._reply.send([])

    def _body(self) -> bytes:
        version = self._header.api_version
        nodes: list[NodeEndpoint] = []
        if self._failed and version >= HINTS_FROM:
            nodes = self._add_hints()
        return write_produce_response(version, self._topics, self._throttle_ms, nodes)

    def _add_hints(self) -> list[NodeEndpoint]:
        """Name the current leader where we are not it; answers where those leaders are."""
        leaders = set()
        for topic, topic_id, results in self._topics:
            for index, result in enumerate(results):
                if result.error_code not in leader_hints.HINTED:
                    continue
                hint = leader_hints.current_leader(
                    self._parts.metadata, topic, topic_id, result.partition
                )
                if hint is not None:
                    results[index] = result._replace(current_leader=hint)
                    leaders.add(hint[0])
        return leader_hints.endpoints(self._parts.metadata, self._connection.listener.name, leaders)


def _result(outcome: AppendOutcome, partition: int) -> ProducePartitionResult:
    error_code, base_offset, _, append_time_ms, log_start, _, message, refused = outcome
    return ProducePartitionResult(
        partition,
        error_code,
        base_offset,
        append_time_ms,
        log_start,
        message,
        record_errors=tuple((index, _RECORD_REFUSED) for index in refused),
    )


def _topic_refused(
    parts: ProduceParts, connection: Connection, topic: str, topic_id: bytes
) -> ErrorCode | None:
    """What the whole topic hears before anything is looked at."""
    if not topic:
        known = parts.metadata.image.topics_by_id.get(TopicId(topic_id))
        if known is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        topic = known.name
    if not parts.facts.authorizer.authorize(
        connection.principal, Operation.WRITE, topic_resource(topic)
    ):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.INVALID_TOPIC_EXCEPTION if topic in INTERNAL_TOPICS else None


def _records_refused(records: memoryview | None, version: int) -> ProducePartitionResult | None:
    """What the request's version forbids; all else the partition judges."""
    if records is None:
        return ProducePartitionResult(
            0, int(ErrorCode.INVALID_RECORD), error_message="a partition needs one record batch"
        )
    if (
        version < ZSTD_FROM
        and len(records) >= HEADER_BYTES
        and records[CRC_START + 1] & COMPRESSION_MASK == ZSTD
    ):
        return ProducePartitionResult(
            0,
            int(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE),
            error_message="zstd needs Produce 7 or newer",
        )
    return None
