"""Produce (0), versions 3 to 13: append inside the connection's callback, answer now or when it is
committed.
"""

from typing import Final

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
from tidemark.model.authorization import Operation, topic_resource, transactional_id_resource
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import TopicId
from tidemark.model.topics import INTERNAL_TOPICS

from broker.core.commit_wait import CommitWait
from broker.core.produce_request import ANSWER, CLOSE, HOLD, PARK, Action, PendingProduce, Step
from broker.core.txn_checks import NOT_ALLOWED, claims_transaction
from broker.shell.kafka import leader_hints
from broker.shell.kafka.produce_parts import ProduceParts
from broker.shell.listener.connection import Connection
from broker.shell.listener.replies import Reply
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
    """Append the batches of the request, and answer now or when they are committed."""
    if parts.parked.requests.is_full and _may_wait(
        parts, read_produce_request(body, header.api_version)
    ):
        parts.counters.requests[ApiKey.PRODUCE] -= 1  # it is counted again when it is taken
        connection.put_back(parts.parked.requests)
        return
    prefix_bytes = connection.produce_prefix_bytes
    if prefix_bytes and len(body) > prefix_bytes and not parts.facts.quotas.tells_producers:
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
    """True if the answer may have to wait, as far as is known before the append."""
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
    """Do as ``_handle_request`` for one batch of a partition that a request has named before."""
    version, acks, timeout_ms, topic, topic_id, partition, _ = known
    hosted = parts.table.find(topic, topic_id, partition)
    if (
        isinstance(hosted, ErrorCode)
        or hosted.is_internal
        or not parts.facts.authorizer.authorize(
            connection.requester, Operation.WRITE, hosted.resource
        )
    ):
        hosted = _topic_refused(parts, connection, topic, topic_id) or hosted
    if claims_transaction(records):
        hosted = NOT_ALLOWED.error_code  # such a request has no transactional id
    if not isinstance(hosted, ErrorCode) and _is_usual(hosted, records, version):
        hosted.counters.produces += 1
        outcome = parts.appender.append_batch(hosted, records, acks, parts.facts.clock.wall_ms())
        error_code, base_offset, _, append_ms, log_start, must_wait, _, _, _ = outcome
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
    elif outcome.is_correctable:
        produce.correct(hosted, partition, records, results)
    else:
        produce.note(outcome, hosted, results, len(results))
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

    Usually every batch is appended and committed at once; ``_Produce`` does the rest.
    """
    version = header.api_version
    acks, now_ms = request.acks, parts.facts.clock.wall_ms()
    topics: list[ProduceTopicResult] = []
    produce: _Produce | None = None
    transactional = request.transactional_id is not None
    may_transact = _may_transact(parts, connection, request.transactional_id)
    for topic, topic_id, partitions in request.topics:
        results: list[ProducePartitionResult] = []
        topics.append((topic, topic_id, results))
        refused = _topic_refused(parts, connection, topic, topic_id)
        for partition, records in partitions:
            hosted = refused or parts.table.find(topic, topic_id, partition)
            if not may_transact and claims_transaction(records):
                hosted = NOT_ALLOWED.error_code
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
            error_code, base_offset, _, append_ms, log_start, must_wait, message, _, _ = outcome
            if error_code or must_wait:
                produce = produce or _Produce(parts, connection, header, request, topics)
                if outcome.is_correctable:
                    produce.correct(hosted, partition, records, results)
                    continue
                produce.note(outcome, hosted, results, len(results))
            results.append(
                # A NamedTuple's own constructor takes twice as long.
                tuple.__new__(
                    ProducePartitionResult,
                    (partition, error_code, base_offset, append_ms, log_start, message, None, ()),
                )
            )
    throttle_ms = 0
    if parts.facts.quotas.tells_producers:
        client = connection.requester.principal, header.client_id
        throttle_ms = parts.facts.quotas.produced(*client, size_bytes)
        connection.mute(throttle_ms)
        throttle_ms = max(throttle_ms, parts.facts.quotas.request_ms(*client))
    if produce is not None:
        produce.finish(throttle_ms)
    elif acks != 0:
        connection.answer(header, write_produce_response(version, topics, throttle_ms))


def _may_transact(
    parts: ProduceParts, connection: Connection, transactional_id: str | None
) -> bool:
    """True if the sender may write in transactions of the id that the request names."""
    if transactional_id is None:
        return False
    resource = transactional_id_resource(transactional_id)
    return parts.facts.authorizer.authorize(connection.requester, Operation.WRITE, resource)


def _is_usual(hosted: HostedPartition, records: memoryview | None, version: int) -> bool:
    """True if the batch may go straight into the log, as almost always."""
    return (
        records is not None
        and version >= ZSTD_FROM
        and not hosted.turns
        and (hosted.rule is None or not must_inspect(hosted, records, None))
    )


_Place = tuple[list[ProducePartitionResult], int]
"""Results of a topic, and the index of one of them."""


class _Produce:
    """One request that may have to wait: ``PendingProduce`` with its bytes and awaits."""

    __slots__ = (
        "_connection",
        "_header",
        "_parts",
        "_pending",
        "_reply",
        "_request",
        "_throttle_ms",
        "_topics",
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
        self._throttle_ms = 0
        self._pending: PendingProduce[HostedPartition, _Place] = PendingProduce(
            request.acks, parts.facts.clock.now_ms(), request.timeout_ms
        )

    def take_unusual(
        self,
        hosted: HostedPartition | ErrorCode,
        partition: int,
        records: memoryview | None,
        results: list[ProducePartitionResult],
    ) -> None:
        """Take a partition that is not here, or a batch that is refused, old or for a worker."""
        if isinstance(hosted, ErrorCode):
            self._pending.refused()
            results.append(ProducePartitionResult(partition, int(hosted)))
            return
        hosted.counters.produces += 1
        problem = _records_refused(records, self._header.api_version)
        if problem is not None:
            self._pending.refused()
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
        if outcome.is_correctable:
            self.correct(hosted, partition, records, results)
            return
        self.note(outcome, hosted, results, len(results))
        results.append(_result(outcome, partition))

    def correct(
        self,
        hosted: HostedPartition,
        partition: int,
        records: memoryview,
        results: list[ProducePartitionResult],
    ) -> None:
        """Append a batch again, once a worker has set it right."""
        acks, lane = self._request.acks, self._connection
        results.append(ProducePartitionResult(partition, NO_ERROR))
        inspection = self._parts.inspection
        work = InspectedAppend(inspection, hosted, bytes(records), acks=acks, lane=lane)
        self._run(work, hosted, results)

    def note(
        self,
        outcome: AppendOutcome,
        hosted: HostedPartition,
        results: list[ProducePartitionResult],
        index: int,
    ) -> None:
        """Note the outcome of an append, whose result is ``results[index]``."""
        if outcome.error_code:
            self._pending.refused()
        elif outcome.must_wait:
            self._pending.appended(CommitWait.of(hosted, outcome.end), (results, index))

    def _detour(
        self, hosted: HostedPartition, records: memoryview
    ) -> VerifiedAppend | InspectedAppend | None:
        """Return the append of a batch that the coordinator or a worker must see first, or None.
        It takes its turn now, in the order of requests.
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
        """Start a task that does the work."""
        self._pending.detour_began()
        self._connection.order.append_began()
        index = len(results) - 1

        async def run() -> None:
            outcome = await work.run()
            results[index] = _result(outcome, results[index].partition)
            self.note(outcome, hosted, results, index)
            self._perform(self._pending.detour_ended(self._parts.facts.clock.now_ms()))
            self._connection.append_ended()

        self._connection.start(run())

    def finish(self, throttle_ms: int) -> None:
        """Answer after every partition was taken, or take the answer's place until it can be
        given.
        """
        self._throttle_ms = throttle_ms
        pending = self._pending
        if pending.has_failed:
            self._parts.counters.request_errors[ApiKey.PRODUCE] += 1
        step = pending.taken()
        if step.action is HOLD or step.action is PARK:
            self._reply = self._connection.later(self._header)
        self._perform(step)

    def _perform(self, step: Step[HostedPartition, _Place]) -> None:
        for (results, index), error_code in step.failures:
            results[index] = ProducePartitionResult(results[index].partition, int(error_code))
        if step.action is HOLD:
            return
        if step.action is not PARK:
            self._end(step.action)
            return
        parked, reply = self._parts.parked.requests, self._reply
        assert reply is not None, "only a pending request parks"
        waiting = parked.park_produce(
            step.ends, now=step.now, wait_ms=step.wait_ms, wake=self._woken
        )
        if waiting is None:
            self._perform(self._pending.not_parked())
        else:
            reply.on_gone = lambda: parked.cancel(waiting)

    def _woken(self, fulfilled: bool) -> None:  # noqa: FBT001 - Parked's callback
        if self._connection.closed:
            return
        pending = self._pending
        if fulfilled:
            self._perform(pending.committed())
        else:
            self._perform(pending.woken(self._parts.facts.clock.now_ms()))

    def _end(self, action: Action) -> None:
        reply, connection = self._reply, self._connection
        if connection.closed:
            return
        if action is ANSWER:
            if reply is None:
                connection.answer(self._header, self._body())
            else:
                reply.send([self._body()])
        elif action is CLOSE:
            connection.close("a produce with acks=0 failed")
        elif reply is not None:
            reply.send([])

    def _body(self) -> bytes:
        version = self._header.api_version
        nodes: list[NodeEndpoint] = []
        if self._pending.has_failed and version >= HINTS_FROM:
            nodes = self._add_hints()
        return write_produce_response(version, self._topics, self._throttle_ms, nodes)

    def _add_hints(self) -> list[NodeEndpoint]:
        """Name the current leader where it is another broker. Return the endpoints of leaders."""
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
    error_code, base_offset, _, append_time_ms, log_start, _, message, refused, _ = outcome
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
    """Return the error of a whole topic, if any, before its partitions are looked at."""
    if not topic:
        known = parts.metadata.image.topics_by_id.get(TopicId(topic_id))
        if known is None:
            return ErrorCode.UNKNOWN_TOPIC_ID
        topic = known.name
    if not parts.facts.authorizer.authorize(
        connection.requester, Operation.WRITE, topic_resource(topic)
    ):
        return ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return ErrorCode.INVALID_TOPIC_EXCEPTION if topic in INTERNAL_TOPICS else None


def _records_refused(records: memoryview | None, version: int) -> ProducePartitionResult | None:
    """Return the refusal of a batch that the request's version forbids. All other rules are the
    partition's.
    """
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
