"""ShareFetch (78), versions 1 and 2: sessions, acknowledgements, records as slices of files."""

from collections.abc import Sequence
from itertools import chain
from typing import Final, NamedTuple

from tidemark.kafka.apis import ApiKey
from tidemark.kafka.headers import RequestHeader
from tidemark.kafka.share_requests import ShareFetchRequest, read_share_fetch_request
from tidemark.kafka.share_responses import (
    NO_LEADER,
    ShareFetchResult,
    write_share_fetch_response_parts,
)
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs, TopicId

from broker.core.parked import WAIT_MS_MAX, ParkedRequest
from broker.core.share.acknowledgement import DONE, Answer
from broker.core.share.acquisition import AcquiredRecords, Wanted
from broker.core.share.fetch_plan import FetchLimits, FetchPlan, PartitionTurn
from broker.core.share.request_rules import FetchTerms, refused_terms
from broker.core.share.sessions import (
    FINAL_EPOCH,
    PartitionKey,
    SessionKey,
    SessionRefusal,
    SessionRequest,
    ShareSession,
)
from broker.core.share.states import Phase
from broker.shell.kafka.share_parts import (
    ShareParts,
    acknowledge,
    endpoints_of,
    leader_of,
    refused_request,
    topic_refused,
)
from broker.shell.listener.connection import Connection
from broker.shell.listener.replies import Part, Reply, weave
from broker.shell.share.held import HeldShare
from broker.storage.log import LogSlice

READS_MAX: Final = 16
"""Reads of one partition in one look; there may be many batches without records for the group."""


class Fetched(NamedTuple):
    """Result of one partition: records or an error."""

    answer: Answer
    acquired: list[AcquiredRecords]
    slices: tuple[LogSlice, ...]
    size_bytes: int = 0
    """Size of the records."""
    records: int = 0
    """Number of records."""


NOTHING: Final = Fetched(DONE, [], ())


def handle(
    parts: ShareParts, connection: Connection, header: RequestHeader, body: memoryview
) -> None:
    """Acknowledge, then acquire; answer now, or once there are records and all is written."""
    request = read_share_fetch_request(body, header.api_version)
    bytes_min = request.bytes_min
    bytes_max = min(request.bytes_max, parts.facts.config.fetch_max_bytes)
    if parts.facts.quotas.limits_fetch:
        # Throttled for longer than a window, a member could not acknowledge before its locks end.
        client = connection.requester.principal, header.client_id
        bytes_max = parts.facts.quotas.fetch_bytes_max(*client, bytes_max)
        bytes_min = min(bytes_min, max(bytes_max, 1))
    terms = FetchTerms(
        min(request.wait_ms_max, WAIT_MS_MAX),
        bytes_min,
        bytes_max,
        request.records_max,
        request.batch_records_max,
        request.acquire_mode,
        request.renews,
    )
    session = _session(parts, connection, request, terms)
    if isinstance(session, SessionRefusal):
        parts.counters.request_errors[ApiKey.SHARE_FETCH] += 1
        code, message = session
        pieces = write_share_fetch_response_parts(error_code=int(code), error_message=message)
        connection.answer(header, pieces[0])
        return
    ShareFetch(parts, connection, header, terms, session).begin(request)


def _session(
    parts: ShareParts, connection: Connection, request: ShareFetchRequest, terms: FetchTerms
) -> ShareSession | SessionRefusal:
    refused = refused_request(parts, connection, request.group_id, request.member_id)
    refused = refused or refused_terms(terms)
    if refused is not None:
        return refused
    assert request.group_id is not None, "it was checked"
    assert request.member_id is not None, "it was checked"
    is_final = request.session_epoch == FINAL_EPOCH
    added: list[PartitionKey] = []
    has_acknowledgements = False
    for topic_id, partitions in request.topics:
        for partition, batches in partitions:
            if batches:
                has_acknowledgements = True
            if not (is_final and batches):
                added.append((TopicId(topic_id), partition))
    return parts.shares.sessions.fetch(
        SessionRequest(
            SessionKey(request.group_id, request.member_id),
            request.session_epoch,
            connection,
            added,
            _keys_of(request.forgotten) if request.forgotten else (),
            has_acknowledgements,
        )
    )


def _keys_of(topics: Sequence[tuple[bytes, list[int]]]) -> list[PartitionKey]:
    return [(TopicId(topic_id), partition) for topic_id, numbers in topics for partition in numbers]


class ShareFetch:
    """One ShareFetch request on its way to its answer."""

    __slots__ = (
        "_acknowledged",
        "_connection",
        "_found",
        "_header",
        "_is_fetched",
        "_parked",
        "_parts",
        "_places",
        "_reply",
        "_session",
        "_terms",
    )

    def __init__(
        self,
        parts: ShareParts,
        connection: Connection,
        header: RequestHeader,
        terms: FetchTerms,
        session: ShareSession,
    ) -> None:
        self._parts = parts
        self._connection = connection
        self._header = header
        self._terms = terms
        self._session = session
        self._places: dict[PartitionKey, HeldShare | Answer] = {}
        """Share-partitions of the request, and errors of those that are not here."""
        self._found: dict[PartitionKey, Fetched] = {}
        self._is_fetched = False
        self._parked: ParkedRequest | None = None
        self._reply: Reply | None = None

    @property
    def member_id(self) -> str:
        """See WaitingFetch."""
        return self._session.key.member_id

    def begin(self, request: ShareFetchRequest) -> None:
        """Do what the request's arrival causes."""
        parts, session, terms = self._parts, self._session, self._terms
        version = self._header.api_version
        self._acknowledged = acknowledge(
            parts, self._connection, version, session, request.topics, renews=terms.renews
        )
        if session.is_closing:
            parts.shares.close(session)
            self._is_fetched = True
        elif terms.fetches_nothing:
            self._is_fetched = True
        else:
            self._places = self._find_places()
            self._is_fetched = self._look(is_due=terms.wait_ms_max <= 0) or not self._park()
        if self._is_fetched and self._acknowledged.is_complete:
            self._connection.answer_parts(self._header, self._answer())
            return
        self._reply = self._connection.later(self._header)
        self._reply.on_gone = self._gone
        self._acknowledged.on_complete = self._maybe_send

    def _find_places(self) -> dict[PartitionKey, HeldShare | Answer]:
        """Return the share-partitions of the session; each topic is authorized once."""
        places: dict[PartitionKey, HeldShare | Answer] = {}
        refused: dict[TopicId, ErrorCode | None] = {}
        group_id, find = self._session.key.group_id, self._parts.shares.find
        for key in self._session.partitions:
            topic_id = key[0]
            if topic_id not in refused:
                refused[topic_id] = topic_refused(self._parts, self._connection, topic_id)
            found = refused[topic_id] or find(group_id, key)
            places[key] = Answer(found) if isinstance(found, ErrorCode) else found
        return places

    # -- looks

    def _look(self, *, is_due: bool) -> bool:
        """Acquire what there is. Return False if the request is to wait."""
        parts, session, terms = self._parts, self._session, self._terms
        if not parts.shares.sessions.is_open(session):
            return True
        now = parts.facts.clock.now_ms()
        if not is_due and terms.bytes_min > 1 and not self._has_enough(now):
            return False
        plan = self._plan()
        while (turn := plan.next_turn()) is not None:
            found = self._serve(turn, now)
            if found is not NOTHING:
                self._found[turn.key] = found
            plan.gave(found.records, found.size_bytes)
        session.served(plan.served)
        return bool(self._found) or is_due

    def _plan(self) -> FetchPlan:
        keys = [key for key in self._session.partitions if key in self._places]
        return FetchPlan(keys, FetchLimits(self._terms.records_max, self._terms.bytes_max))

    def _has_enough(self, now: InstantMs) -> bool:
        """Return True if MinBytes can be read now, or an error must not wait. Nothing is acquired:
        locks would pass while the request waits.
        """
        plan, size_bytes = self._plan(), 0
        while (turn := plan.next_turn()) is not None:
            held = self._usable(turn.key)
            if isinstance(held, Answer):
                return True
            read_plan = held.share.plan_read(now, self.member_id)
            read = None if read_plan is None else self._parts.reader.read(held, read_plan, turn)
            if isinstance(read, ErrorCode):
                return True
            size_bytes += 0 if read is None else read.size_bytes
            plan.gave(0, 0)
        return size_bytes >= self._terms.bytes_min

    def _usable(self, key: PartitionKey) -> HeldShare | Answer:
        held = self._places[key]
        if isinstance(held, Answer) or (held.share.phase is Phase.ACTIVE and held.is_led):
            return held
        problem = held.problem()
        if problem is None and not held.is_led:
            problem = Answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return problem or held

    def _serve(self, turn: PartitionTurn, now: InstantMs) -> Fetched:
        """Acquire records of one partition."""
        held = self._usable(turn.key)
        if isinstance(held, Answer):
            return Fetched(held, [], ())
        member, terms, shares = self.member_id, self._terms, self._parts.shares
        held.hosted.counters.fetches += 1
        plan = held.share.plan_read(now, member)
        if plan is None or plan.first_offset >= held.readable_end:
            return NOTHING  # the usual case, of partitions without traffic
        if not shares.may_deliver(held):
            return NOTHING
        wanted = Wanted(member, turn.records_max, terms.batch_records_max, terms.mode)
        for _ in range(READS_MAX):
            read = None if plan is None else self._parts.reader.read(held, plan, turn)
            if read is None:
                return NOTHING
            if isinstance(read, ErrorCode):
                held.hosted.counters.failed_fetches += 1
                return Fetched(Answer(read), [], ())
            acquired = held.share.acquire(read.log, wanted, now)
            shares.turns.touch(held)
            if acquired:
                slices = read.slices_of(acquired)
                size_bytes = sum([one.length for one in slices])
                records = sum([last - first + 1 for first, last, _ in acquired])
                held.hosted.counters.bytes_out += size_bytes
                return Fetched(DONE, acquired, slices, size_bytes, records)
            before, plan = plan, held.share.plan_read(now, member)
            if plan == before:
                return NOTHING
        shares.turns.wake(held)  # go on in another turn of the loop
        return NOTHING

    # -- waiting

    def _park(self) -> bool:
        """Wait for records. False: there is no room to wait, the request was served as it is."""
        parts = self._parts
        self._parked = parts.parked.requests.park_fetch(
            [self],
            bytes_missing=1,
            now=parts.facts.clock.now_ms(),
            wait_ms=self._terms.wait_ms_max,
            wake=self._at_deadline,
        )
        if self._parked is None:
            self._look(is_due=True)
            return False
        held = [one for one in self._places.values() if isinstance(one, HeldShare)]
        parts.shares.turns.park(self, held)
        return True

    def look_again(self) -> None:
        """See WaitingFetch."""
        if self._look(is_due=False):
            self._stop_waiting()
            self._is_fetched = True
            self._maybe_send()

    def _at_deadline(self, _: bool) -> None:  # noqa: FBT001 - what is there is answered either way
        self._parked = None
        self._stop_waiting()
        if self._terms.bytes_min > 1:
            self._look(is_due=True)  # else it was looked at whenever something had changed
        self._is_fetched = True
        self._maybe_send()

    def _stop_waiting(self) -> None:
        if self._parked is not None:
            self._parts.parked.requests.cancel(self._parked)
            self._parked = None
        self._parts.shares.turns.leave(self)

    def _gone(self) -> None:
        self._stop_waiting()
        self._acknowledged.on_complete = None

    # -- the answer

    def _maybe_send(self) -> None:
        if self._is_fetched and self._acknowledged.is_complete:
            assert self._reply is not None, "it waited"
            self._acknowledged.on_complete = None
            self._reply.send(self._answer())

    def _answer(self) -> list[Part]:
        """Return the response's pieces with the records' slices between them."""
        parts, connection = self._parts, self._connection
        acknowledged = self._acknowledged.answers
        topics: dict[bytes, list[ShareFetchResult]] = {}
        slices: dict[bytes, list[Sequence[LogSlice]]] = {}
        leaders: set[int] = set()
        size_bytes = 0
        for key in {**self._found, **acknowledged}:
            found, written = self._found.get(key, NOTHING), acknowledged.get(key, DONE)
            answer = found.answer
            leader = leader_of(parts, key, answer.error_code, written.error_code)
            if leader is not NO_LEADER:
                leaders.add(leader[0])
            result = ShareFetchResult(
                key[1],
                answer.error_code,
                answer.message,
                written.error_code,
                written.message,
                leader,
                found.acquired,
                found.size_bytes,
            )
            size_bytes += found.size_bytes
            topics.setdefault(key[0], []).append(result)
            slices.setdefault(key[0], []).append(found.slices)
        pieces = write_share_fetch_response_parts(
            throttle_time_ms=self._throttle(size_bytes),
            lock_ms=parts.shares.config_of(self._session.key.group_id).record_lock_duration_ms,
            topics=list(topics.items()),
            node_endpoints=endpoints_of(parts, connection, leaders) if leaders else (),
        )
        return weave(pieces, list(chain.from_iterable(slices.values())))

    def _throttle(self, size_bytes: int) -> int:
        quotas = self._parts.facts.quotas
        if not quotas.limits_fetch and not quotas.limits_requests:
            return 0
        client = self._connection.requester.principal, self._header.client_id
        throttle_ms = quotas.fetched(*client, size_bytes)
        self._connection.mute(throttle_ms)
        return max(throttle_ms, quotas.request_ms(*client))
