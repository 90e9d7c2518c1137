"""LetterCopier: performs the steps that ``DeadLetters`` decides, as one task for each
share-partition with dead letters.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from tidemark.codec.java_hash import shard_for_name
from tidemark.codec.records import RecordsError
from tidemark.model.authorization import MEMBER
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark.model.ids import Offset
from tidemark.model.partition_leader import find_leader
from tidemark.model.share_state import ReadStateSummary
from tidemark.model.topics import SHARE_GROUP_STATE, TRANSACTION_STATE, TopicPartition
from tidemark.runtime import failpoints
from tidemark.runtime.append_call import AppendCall
from tidemark.runtime.channel_pool import CallFailedError, ChannelPool
from tidemark.runtime.metadata_cache import MetadataCache
from tidemark.runtime.task_parent import TaskParent
from tidemark.runtime.telemetry import fields
from tidemark.runtime.worker_pool import (
    JobTooLargeError,
    JobTooLongError,
    WorkerDiedError,
    WorkerPool,
    WorkerPoolBusyError,
)
from tidemark.storage.disk import DiskError
from tidemark_wire.v1 import common_pb2
from tidemark_wire.v1 import partition_store_pb2 as pb

from broker.core.share.acquisition import ReadPlan
from broker.core.share.answers import OVERTAKEN_BY
from broker.core.share.dead_letters import Attempt, Problem, Step
from broker.core.share.letter_copies import TRANSACTIONAL_IDS, Copies, CopyOrder, copies
from broker.core.share.letter_queue import QueueTopic, queue_problem
from broker.core.share.log_batches import ReadLimits
from broker.shell.cluster.internal_topics import InternalTopics
from broker.shell.facts import BrokerFacts
from broker.shell.partitions.topic_defaults import broker_defaults, effective
from broker.shell.request_context import RequestContext
from broker.shell.share.held import HeldShare
from broker.shell.share.reading import ShareRead, ShareReader
from broker.shell.share.state import ShareState
from broker.shell.transactions.txn_relay import Granted, Producer, TxnRelay
from broker.shell.wire_mapping import Caller
from broker.storage.log import LogSlice

log = logging.getLogger(__name__)

TRANSACTION_TIMEOUT_MS: Final = 60_000
"""Time after which the txn-coordinator aborts what a leader has left behind, unless the next leader
does it before.
"""
SOURCE_BYTES_MAX: Final = 4 * 1024 * 1024
"""Batches of the log that are read for one transaction; the first is read whole."""
_ALL_IN_SYNC: Final = -1
_CALLER: Final = Caller(MEMBER, "", "")
_CONTEXT: Final = RequestContext(MEMBER, None, 0, 0, "", "", "")
_WALK_FAILURES = (
    DiskError,
    JobTooLargeError,
    JobTooLongError,
    RecordsError,
    WorkerDiedError,
)


def transactional_id(held: HeldShare) -> str:
    """Return the id of the transactions that copy letters of a share-partition: the same at every
    leader.
    """
    topic_id, partition = held.partition_key
    return f"{TRANSACTIONAL_IDS}{held.group_id}-{topic_id.hex()}-{partition}"


class LetterCopier:
    """Copies of one broker. ``run`` is the parent of all tasks; none begins outside it."""

    def __init__(
        self,
        facts: BrokerFacts,
        metadata: MetadataCache,
        channels: ChannelPool,
        internal_topics: InternalTopics,
        relay: TxnRelay,
        state: ShareState,
        reader: ShareReader,
        workers: WorkerPool,
    ) -> None:
        self.on_changed: Callable[[HeldShare], None] = lambda _: None
        """Called after each step."""
        self.on_overtaken: Callable[[HeldShare], None] = lambda _: None
        """Called if another leader or another state epoch has taken over."""
        self.copied = 0
        self.failures = 0
        self._facts = facts
        self._metadata = metadata
        self._channels = channels
        self._internal_topics = internal_topics
        self._relay = relay
        self._state = state
        self._reader = reader
        self._workers = workers
        self._attempts = TaskParent()

    async def run(self) -> None:
        """Hold the tasks of attempts until cancelled."""
        await self._attempts.run()

    def start(self, held: HeldShare) -> None:
        """Begin the next attempt, which is due."""
        if not self._attempts.is_running:
            return
        attempt = held.letters.begin(self._facts.clock.now_ms())
        if attempt is not None:
            self._attempts.start(self._perform(held, attempt))

    async def _perform(self, held: HeldShare, attempt: Attempt) -> None:
        """Perform an attempt; an internal error ends this attempt alone."""
        letters = held.letters
        before, copied = letters.problem, letters.copied
        work = _Copying(held, attempt)
        try:
            await self._take_steps(work)
        except Exception:
            log.critical("dead letters not copied: internal error", exc_info=True)
            words = Problem(ErrorCode.UNKNOWN_SERVER_ERROR, "an internal error of the broker")
            letters.abandon(attempt, self._facts.clock.now_ms(), words)
        if work.is_dropped:
            return
        self.copied += letters.copied - copied
        self.failures += attempt.problem is not None
        self._report(held, before)
        if work.is_overtaken:
            self.on_overtaken(held)
        self.on_changed(held)

    async def _take_steps(self, work: "_Copying") -> None:
        """Take all steps of an attempt, unless the share-partition is dropped meanwhile."""
        held, attempt, letters = work.held, work.attempt, work.held.letters
        while attempt.step is not None and letters.is_current(attempt) and held.is_led:
            step = attempt.step
            failpoints.hit(f"share-letters-{step}")
            problem = await self._works[step](self, work)
            if not letters.is_current(attempt):
                work.is_dropped = True
                return
            letters.did(attempt, problem, self._facts.clock.now_ms())
            failpoints.hit(f"share-letters-{step}-done")
            if step is Step.HOLD and problem is not None:
                work.is_overtaken = problem.error_code in OVERTAKEN_BY

    @staticmethod
    def _report(held: HeldShare, before: Problem | None) -> None:
        """Log a change of whether the queue can be written."""
        now = held.letters.problem
        if now == before:
            return
        facts = fields(
            share_partition=str(held.share.key),
            queue=held.config.dead_letter_topic,
            waiting=held.letters.waiting,
            reason="" if now is None else now.message,
        )
        if now is None:
            log.info("dead-letter queue can be written again", extra=facts)
        else:
            log.warning("dead-letter queue cannot be written", extra=facts)

    # -- steps

    async def _begin(self, work: "_Copying") -> Problem | None:
        problem = self._queue_problem(work) if work.attempt.spans else None
        if problem is not None:
            return problem
        missing = await self._internal_topics.ensure(_CONTEXT, TRANSACTION_STATE)
        if missing is not None:
            return Problem(missing.code, missing.message)
        producer = Producer(work.transactional_id, -1, -1)
        granted = await self._relay.init(_CALLER, producer, TRANSACTION_TIMEOUT_MS)
        return work.take(granted, "its transactional id could not be taken over")

    async def _read(self, work: "_Copying") -> Problem | None:
        held, attempt = work.held, work.attempt
        queue, source = self._queue(held), held.hosted.topic_partition
        problem = self._queue_problem(work)
        if problem is not None:
            return problem
        assert queue.config is not None, "it has no problem"
        places, end = self._places(work)
        if isinstance(places, ErrorCode):
            return Problem(places, f"{source}: the records could not be read")
        assert attempt.transaction is not None, "begun"
        order = CopyOrder(
            source,
            held.group_id,
            held.letters.letters_of(attempt),
            held.share.settings.deliveries_max,
            held.config.dead_letter_copy_record,
            attempt.transaction,
            self._facts.clock.wall_ms(),
            queue.config.max_message_bytes,
        )
        try:
            stored = [
                await asyncio.to_thread(one.file.read_at, one.position, one.length)
                for one in places
            ]
            work.copies = await self._workers.run_for(held, copies, stored, order)
        except WorkerPoolBusyError as busy:
            return Problem(ErrorCode.REQUEST_TIMED_OUT, f"{source}: {busy}")
        except _WALK_FAILURES as failure:
            return Problem(ErrorCode.KAFKA_STORAGE_ERROR, f"{source}: {failure}")
        work.queue = queue.partition_of(source)
        found = work.copies
        end = end if found.end is None else min(end, found.end)
        held.letters.was_read(attempt, end, found.too_large, found.unreadable)
        attempt.copies = work.copies.records
        return None

    def _queue_problem(self, work: "_Copying") -> Problem | None:
        held, config = work.held, self._facts.config
        prefix = config.errors_deadletterqueue_topic_name_prefix
        return queue_problem(self._queue(held), held.hosted.topic_partition, prefix)

    def _queue(self, held: HeldShare) -> QueueTopic:
        image, name = self._metadata.image, held.config.dead_letter_topic
        topic = image.topics.get(name)
        if topic is None:
            return QueueTopic(name, 0, None)
        defaults = broker_defaults(self._facts.config, image, self._facts.broker_id)
        return QueueTopic(name, len(topic.partitions), effective(topic, defaults))

    def _places(self, work: "_Copying") -> tuple[list[LogSlice] | ErrorCode, Offset]:
        """Return the batches that have letters, and the end of what was read: all letters below it
        are in these batches or have no record, and none of the others is.
        """
        places: list[LogSlice] = []
        bytes_left, end = SOURCE_BYTES_MAX, Offset(0)
        for first, last, _ in work.held.letters.letters_of(work.attempt):
            if last < end:
                continue  # in a batch that was read for an earlier one
            first, span_end = max(first, end), Offset(last + 1)
            limits = ReadLimits(span_end, last - first + 1, bytes_left, may_exceed=not places)
            found = self._reader.read_batches(work.held, ReadPlan(first, span_end), limits)
            if isinstance(found, ErrorCode):
                return found, end
            if not isinstance(found, ShareRead):
                return (places or ErrorCode.OFFSET_NOT_AVAILABLE), end
            for batch, place in zip(found.log.batches, found.places, strict=True):
                if batch.has_records:
                    places.append(place)
                    bytes_left -= place.length
            end = found.log.end
            if end < span_end:
                break
        return places, end

    async def _copy(self, work: "_Copying") -> Problem | None:
        assert work.copies is not None, "read before"
        assert work.queue is not None, "read before"
        if not work.copies.batches:
            return None
        leader = find_leader(self._metadata.image, work.queue)
        if leader is None:
            return Problem(ErrorCode.LEADER_NOT_AVAILABLE, f"{work.queue} has no leader")
        # A leader that verifies adds its partition to the transaction at the first batch.
        if not self._facts.config.transaction_partition_verification_enable:
            problem = await self._add(work, work.queue)
            if problem is not None:
                return problem
        request = pb.AppendRequest(
            partition=common_pb2.TopicPartition(
                topic=work.queue.topic, topic_id=leader.topic_id, partition=work.queue.partition
            ),
            current_leader_epoch=leader.leader_epoch,
            acks=_ALL_IN_SYNC,
            timeout_ms=self._facts.config.errors_deadletterqueue_append_timeout_ms,
            transactional_id=work.transactional_id,
        )
        call = AppendCall(await self._channels.channel(leader.grpc_endpoint), leader.grpc_endpoint)
        try:
            async with asyncio.timeout(request.timeout_ms / 1_000):
                await call.wait_open()
                for batch in work.copies.batches:
                    request.batches = batch
                    answer = await call.exchange(request)
                    if answer.error_code:
                        code = ErrorCode(answer.error_code)
                        words = answer.error_message or code.name
                        return Problem(code, f"{work.queue}: {words}")
        except (CallFailedError, TidemarkError, TimeoutError) as failure:
            words = f"{work.queue}: not appended: {failure or 'no answer in time'}"
            return Problem(ErrorCode.REQUEST_TIMED_OUT, words)
        finally:
            call.close()
        return None

    async def _enlist(self, work: "_Copying") -> Problem | None:
        topic = self._metadata.image.topics.get(SHARE_GROUP_STATE)
        if topic is None:
            return Problem(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"no topic {SHARE_GROUP_STATE}")
        shard = shard_for_name(work.held.group_id, len(topic.partitions))
        return await self._add(work, TopicPartition(SHARE_GROUP_STATE, shard))

    async def _add(self, work: "_Copying", partition: TopicPartition) -> Problem | None:
        """Add a partition to the transaction."""
        added = await self._relay.add_partitions(
            _CALLER, work.producer, [partition], transactions_v2=True
        )
        code = added[partition]
        if code is ErrorCode.NONE:
            return None
        return Problem(code, f"{partition} does not take part in the transaction: {code.name}")

    async def _hold(self, work: "_Copying") -> Problem | None:
        write = work.held.letters.archiving(work.attempt)
        timeout_s = self._facts.config.share_coordinator_write_timeout_ms / 1_000
        (result,) = await self._state.write(work.held.group_id, [write], timeout_s)
        if result.error_code is not ErrorCode.NONE:
            words = result.error_message or result.error_code.name
            return Problem(result.error_code, f"the archiving was not written: {words}")
        if result.refused:
            await self._forget_finished(work, timeout_s)
            return Problem(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction is not open")
        return None

    async def _forget_finished(self, work: "_Copying", timeout_s: float) -> None:
        """Compare with the durable start offset, since nothing below it can be archived again."""
        held = work.held
        asked = ReadStateSummary(held.share.key, held.share.leader_epoch)
        (summary,) = await self._state.summaries(held.group_id, [asked], timeout_s)
        if summary.error_code is ErrorCode.NONE:
            held.letters.finished_below(work.attempt, summary.start_offset)

    async def _commit(self, work: "_Copying") -> Problem | None:
        return work.take(await self._end(work, commit=True), "the transaction did not commit")

    async def _abort(self, work: "_Copying") -> Problem | None:
        return work.take(await self._end(work, commit=False), "the transaction did not abort")

    async def _end(self, work: "_Copying", *, commit: bool) -> Granted:
        return await self._relay.end(_CALLER, work.producer, commit=commit, transactions_v2=True)

    _works: Final[Mapping[Step, Callable[[Any, "_Copying"], Awaitable[Problem | None]]]] = {
        Step.BEGIN: _begin,
        Step.READ: _read,
        Step.COPY: _copy,
        Step.ENLIST: _enlist,
        Step.HOLD: _hold,
        Step.COMMIT: _commit,
        Step.ABORT: _abort,
    }


class _Copying:
    """Attempt under way, and what its steps have found."""

    def __init__(self, held: HeldShare, attempt: Attempt) -> None:
        self.held = held
        self.attempt = attempt
        self.transactional_id = transactional_id(held)
        self.copies: Copies | None = None
        self.queue: TopicPartition | None = None
        self.is_dropped = False
        """True if the share-partition was dropped during a step."""
        self.is_overtaken = False
        """True if another leader or another state epoch has taken over."""

    @property
    def producer(self) -> Producer:
        """Producer of the transaction."""
        assert self.attempt.transaction is not None, "begun"
        return Producer(self.transactional_id, *self.attempt.transaction)

    def take(self, granted: Granted, problem: str) -> Problem | None:
        """Take the producer of the next transaction, or the error."""
        code, producer_id, producer_epoch = granted
        if code is not ErrorCode.NONE:
            return Problem(code, f"{problem}: {code.name}")
        if producer_id >= 0:
            self.held.letters.began(self.attempt, producer_id, producer_epoch)
        return None
