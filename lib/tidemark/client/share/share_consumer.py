"""ShareConsumer: records of a share group, whose members read the same partitions together."""

import asyncio
from collections.abc import Iterable, Sequence
from types import TracebackType
from typing import Any, Final, Self

from tidemark.client.config import ShareConsumerConfig, with_settings
from tidemark.client.deadline import Deadline
from tidemark.client.errors import (
    ClientConfigError,
    InvalidRecordStateError,
    UnsupportedVersionError,
)
from tidemark.client.share.ack_batches import ACCEPTED, AcknowledgeType, Decision
from tidemark.client.share.acknowledge_callbacks import (
    AcknowledgeCallback,
    AcknowledgeResults,
    call_back,
)
from tidemark.client.share.deliveries import NotHeldError, PartitionDeliveries, ShareRecord
from tidemark.client.share.share_fetcher import ShareFetcher
from tidemark.client.share.share_group import ShareGroup, new_member_id
from tidemark.client.wire.session import Session
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from tidemark.runtime.clock import Clock

_ITERATION_WAIT_MS: Final = 60_000
DELAY_MS_MAX: Final = 2**31 - 1
_BREATH_MS: Final = 10
"""Time after which polls that find records in memory let the tasks of the consumer run: the
application may never wait between them.
"""
_NAMES: Final = {one.name.lower(): one for one in AcknowledgeType}


class ShareConsumer:
    """Member of a share group: ``async with ShareConsumer("host:9092", group_id="jobs") as
    consumer: consumer.subscribe(["orders"])`` and ``poll``.

    Each record is delivered to one member at a time, under a lock that ends after
    ``lock_timeout_ms``. It is delivered until a member accepts or rejects it, or until the group's
    limit of deliveries.

    ``settings`` are fields of ShareConsumerConfig by name. A consumer belongs to the event loop in
    which it was started.
    """

    def __init__(
        self,
        bootstrap_servers: str | Sequence[str],
        config: ShareConsumerConfig | None = None,
        *,
        clock: Clock | None = None,
        **settings: Any,
    ) -> None:
        if config is None:
            group_id = settings.pop("group_id", "")
            config = with_settings(ShareConsumerConfig(group_id=group_id), settings)
        else:
            config = with_settings(config, settings)
        self.config = config
        self.member_id = new_member_id()
        """Id of this member of the group."""
        self._clock = clock or Clock()
        self._breathe_at_ms = 0
        self._session = Session(bootstrap_servers, self.config, self._clock)
        self._fetcher = ShareFetcher(self._session, self.config, self._clock, self.member_id)
        self._group = ShareGroup(
            self._session, self.config, self._clock, self._fetcher.changed, self.member_id
        )

    async def start(self) -> Self:
        """Start the consumer; ``async with`` does this. It connects at the first poll."""
        await self._session.start()
        self._group.start()
        return self

    async def close(self) -> None:
        """Send acknowledgements that are decided, release all other records, leave the group, and
        release all resources. In implicit mode the records of the last poll are not accepted.
        """
        try:
            if self._session.is_running:
                await self._fetcher.close(self._deadline())
                await self._group.leave()
        finally:
            await self._session.close()

    async def __aenter__(self) -> Self:
        return await self.start()

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        await self.close()

    # -- subscription

    def subscribe(self, topics: Iterable[str]) -> None:
        """Subscribe to topics by name; a further call replaces the subscription.

        Partitions cannot be assigned by hand: the coordinator assigns them.
        """
        if isinstance(topics, str):
            raise TypeError("topics is a list of names, not one name")
        names = tuple(dict.fromkeys(topics))
        if not names:
            raise ClientConfigError(
                ErrorCode.INVALID_REQUEST, "no topics", hint="await unsubscribe() to leave"
            )
        self._group.subscribe(names)

    def subscription(self) -> tuple[str, ...]:
        """Return the topics of the subscription."""
        return self._group.membership.topics if self._group.membership.is_joined else ()

    async def unsubscribe(self) -> None:
        """Leave the group. Records that were received may still be acknowledged."""
        await self._group.leave()
        self._fetcher.assign({})

    def assignment(self) -> tuple[TopicPartition, ...]:
        """Return the partitions assigned to this member; others may have them as well."""
        return tuple(self._fetcher.assigned)

    @property
    def lock_timeout_ms(self) -> int | None:
        """Time after which an acquired record is available to others; None before the first
        answer of a broker.
        """
        return self._fetcher.lock_timeout_ms

    # -- records

    async def poll(
        self, max_records: int | None = None, *, timeout_ms: int = 1_000
    ) -> list[ShareRecord]:
        """Return records that this member has acquired, at most ``max_records``
        (max_poll_records), in offset order of each partition.

        In implicit mode this accepts the records of the last poll. In explicit mode each of them
        must have been acknowledged, else InvalidRecordStateError is raised, or with
        represent_unacknowledged they are returned again. Acknowledgements are sent with the fetch
        of this poll, or at once if it needs none; ``on_acknowledged`` receives their outcome.

        Waits for at most ``timeout_ms`` if there are none, then returns []. Raises ClientError.
        """
        self._session.check_running()
        records_max = self.config.max_poll_records if max_records is None else max_records
        if records_max <= 0:
            raise ValueError(f"max_records is {records_max}; it must be above 0")
        again = self._finish_last_poll()
        await self._acknowledge_unless_fetching(again)
        return again[:records_max] or await self._next(records_max, records_max, timeout_ms)

    def __aiter__(self) -> Self:
        """Iterate over records without end: ``async for record in consumer``.

        Each record counts as a poll of its own: in implicit mode it is accepted when the next one
        is requested. Records are acquired max_poll_records at a time.
        """
        return self

    async def __anext__(self) -> ShareRecord:
        """Wait for the next record and return it."""
        self._session.check_running()
        records = self._finish_last_poll()[:1]
        await self._acknowledge_unless_fetching(records)
        while not records:
            records = await self._next(1, self.config.max_poll_records, _ITERATION_WAIT_MS)
        return records[0]

    # -- acknowledgements

    def acknowledge(
        self,
        record: ShareRecord,
        outcome: AcknowledgeType | str = AcknowledgeType.ACCEPT,
        *,
        delay_ms: int = 0,
    ) -> None:
        """Decide the outcome of one record: accept, release, reject or renew, as a name or an
        AcknowledgeType. It is sent by the next ``poll`` or commit.

        A released record is delivered again after ``delay_ms``, at most the group's
        share.release.backoff.max.ms; 0: after share.release.backoff.ms. A renewed record stays with
        this consumer, which acknowledges it again later.

        Raises InvalidRecordStateError if this consumer does not hold the record, ClientConfigError
        in implicit mode, and UnsupportedVersionError for a delay at another broker than Tidemark's.
        """
        if self.config.share_acknowledgement_mode != "explicit":
            raise ClientConfigError(
                ErrorCode.INVALID_REQUEST,
                "acknowledge() in implicit mode",
                hint="set share_acknowledgement_mode='explicit'",
            )
        decision = Decision(type_of(outcome), _checked_delay(type_of(outcome), delay_ms))
        try:
            deliveries = self._fetcher.deliveries.of(record)
            if delay_ms and not deliveries.takes_own_fields:
                raise _no_delays(record)
            deliveries.acknowledge(record.offset, decision)
        except NotHeldError:
            raise _not_held(record) from None

    def take_out(
        self, records: Iterable[ShareRecord], outcome: AcknowledgeType
    ) -> dict[TopicPartition, tuple[PartitionDeliveries, dict[int, Decision]]]:
        """Take records out of this consumer, for a transaction that acknowledges them; used by
        ``TransactionalProducer.acknowledge``. Raises InvalidRecordStateError.
        """
        taken: dict[TopicPartition, tuple[PartitionDeliveries, dict[int, Decision]]] = {}
        decision = Decision(outcome)
        for record in records:
            at = TopicPartition(record.topic, record.partition)
            try:
                known = self._fetcher.deliveries.of(record)
                known.take_out(record.offset, decision)
            except NotHeldError:
                for deliveries, decisions in taken.values():
                    deliveries.give_back(decisions)
                raise _not_held(record) from None
            taken.setdefault(at, (known, {}))[1][record.offset] = decision
        return taken

    async def commit_sync(self, timeout_ms: int | None = None) -> AcknowledgeResults:
        """Send acknowledgements and wait until they are stored, for at most ``timeout_ms``
        (default_api_timeout_ms). In implicit mode, accept all records received so far.

        Returns the outcome of each partition: None, or the error of its acknowledgements.
        """
        self._session.check_running()
        self._accept_if_implicit()
        begun = self._fetcher.begin_commit()
        return await self._fetcher.commit(begun, self._deadline(timeout_ms))

    def commit_async(self, callback: AcknowledgeCallback | None = None) -> None:
        """Send acknowledgements without waiting; ``callback`` receives the outcome of each
        partition, as ``commit_sync`` returns it.
        """
        self._session.check_running()
        self._accept_if_implicit()
        begun = self._fetcher.begin_commit()

        async def commit() -> None:
            results = await self._fetcher.commit(begun, self._deadline())
            if callback is not None:
                call_back(callback, results)

        self._session.spawn(commit(), name="share-commit")

    def on_acknowledged(self, callback: AcknowledgeCallback | None) -> None:
        """Set the function that receives the outcome of all acknowledgements, by partition."""
        self._fetcher.on_acknowledged = callback

    # -- internals

    async def _next(
        self, records_max: int, acquired_max: int, timeout_ms: int
    ) -> list[ShareRecord]:
        """Return acquired records, at most ``records_max``; acquire more if there are none."""
        deadline = Deadline.after(timeout_ms, self._clock.now_ms())
        advanced = False  # with timeout_ms=0, fetches are started and may run once, too
        while True:
            self._group.attend()
            self._fetcher.assign(self._group.assigned())
            records = self._fetcher.take(records_max)
            if records:
                return records
            self._raise_error()
            if advanced and deadline.passed(self._clock.now_ms()):
                return []
            await self._advance(deadline, acquired_max)
            advanced = True

    async def _acknowledge_unless_fetching(self, again: Sequence[ShareRecord]) -> None:
        """Send what is decided if this poll returns records from memory."""
        if not (again or self._fetcher.has_ready()) or not self._fetcher.acknowledge():
            return
        now = self._clock.now_ms()
        if now >= self._breathe_at_ms:
            self._breathe_at_ms = now + _BREATH_MS
            await asyncio.sleep(0)

    def _finish_last_poll(self) -> list[ShareRecord]:
        """Return the records of earlier polls that are to be returned again."""
        self._accept_if_implicit()
        if self.config.share_acknowledgement_mode != "explicit":
            return []
        undecided = self._fetcher.deliveries.undecided()
        if undecided and not self.config.represent_unacknowledged:
            first = undecided[0]
            at = TopicPartition(first.topic, first.partition)
            raise InvalidRecordStateError(
                ErrorCode.INVALID_RECORD_STATE,
                f"{len(undecided)} records are not acknowledged, the first is offset"
                f" {first.offset} of {at}",
                hint="acknowledge() every record before the next poll",
            )
        return undecided

    def _accept_if_implicit(self) -> None:
        if self.config.share_acknowledgement_mode == "implicit":
            self._fetcher.deliveries.decide_all(ACCEPTED)

    def _raise_error(self) -> None:
        error, self._fetcher.error = self._fetcher.error, None
        if error is not None:
            raise error.with_traceback(None)

    async def _advance(self, deadline: Deadline, records_max: int) -> None:
        """Start fetches and wait for a change, the end of a back-off, or the deadline."""
        changed = self._fetcher.changed
        changed.clear()
        due = self._fetcher.launch(records_max)
        until = deadline.at_ms if due is None else min(deadline.at_ms, due)
        try:
            async with asyncio.timeout(max(0.0, until - self._clock.now_ms()) / 1_000):
                await changed.wait()
        except TimeoutError:
            return

    def _deadline(self, timeout_ms: int | None = None) -> Deadline:
        allowed_ms = self.config.default_api_timeout_ms if timeout_ms is None else timeout_ms
        return Deadline.after(allowed_ms, self._clock.now_ms())


def _not_held(record: ShareRecord) -> InvalidRecordStateError:
    at = TopicPartition(record.topic, record.partition)
    return InvalidRecordStateError(
        ErrorCode.INVALID_RECORD_STATE,
        f"offset {record.offset} of {at} is not held by this consumer",
    )


def _no_delays(record: ShareRecord) -> UnsupportedVersionError:
    at = TopicPartition(record.topic, record.partition)
    return UnsupportedVersionError(
        ErrorCode.UNSUPPORTED_VERSION,
        f"the broker of {at} cannot delay released records",
        hint="release the record without delay_ms",
    )


def _checked_delay(outcome: AcknowledgeType, delay_ms: int) -> int:
    if not 0 <= delay_ms <= DELAY_MS_MAX:
        raise ValueError(f"delay_ms is {delay_ms}; it must be 0 to {DELAY_MS_MAX}")
    if delay_ms and outcome is not AcknowledgeType.RELEASE:
        raise ValueError(f"a delay of {outcome.name.lower()}; only released records are delayed")
    return delay_ms


def type_of(outcome: AcknowledgeType | str) -> AcknowledgeType:
    """Return the type of an outcome by its name. Raises ValueError."""
    if isinstance(outcome, AcknowledgeType):
        return outcome
    known = _NAMES.get(outcome.lower())
    if known is None:
        allowed = ", ".join(_NAMES)
        raise ValueError(f"outcome is {outcome!r}; it must be one of {allowed}")
    return known
