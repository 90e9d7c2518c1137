"""A cluster in memory behind the client's Transport: real batches, Kafka's sequence rules, failures
on demand.
"""

import asyncio
from collections import defaultdict, deque
from collections.abc import Hashable, Sequence

from tidemark.client.config import Address
from tidemark.client.errors import ClientError, ConnectionLostError
from tidemark.client.wire.metadata_cache import BrokerView, ClusterView, PartitionView, TopicView
from tidemark.client.wire.transport import (
    EpochItem,
    EpochOutcome,
    FetchItem,
    FetchLimits,
    FetchOutcome,
    OffsetItem,
    OffsetOutcome,
    ProduceItem,
    ProduceOutcome,
    ProducerIdentity,
)
from tidemark.codec.record_batch import BatchHeader, read_header, set_base_offset_and_epoch
from tidemark.codec.records import Record, read_records, sequence_after
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import LeaderEpoch, Offset
from tidemark.model.topics import TopicPartition

TOPIC_ID = b"t" * 16


class SequenceRules:
    """What a leader checks of one producer's batches in one partition (KIP-98, KIP-360)."""

    def __init__(self) -> None:
        self.epoch = -1
        self.next = -1
        self.last: deque[tuple[int, int, int]] = deque(maxlen=5)

    def check(self, header: BatchHeader) -> tuple[ErrorCode, int]:
        """An error, or the base offset of the batch this one repeats (-1: it is new)."""
        if header.producer_epoch < self.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if header.producer_epoch > self.epoch:
            fresh = self.epoch == -1 or header.base_sequence == 0
            return (ErrorCode.NONE if fresh else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER), -1
        for first, count, base_offset in self.last:
            if (first, count) == (header.base_sequence, header.record_count):
                return ErrorCode.NONE, base_offset
        if header.base_sequence == self.next:
            return ErrorCode.NONE, -1
        behind = header.base_sequence < self.next and len(self.last) == self.last.maxlen
        return (
            ErrorCode.DUPLICATE_SEQUENCE_NUMBER
            if behind
            else ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        ), -1

    def appended(self, header: BatchHeader, base_offset: int) -> None:
        if header.producer_epoch != self.epoch:
            self.epoch = header.producer_epoch
            self.last.clear()
        self.last.append((header.base_sequence, header.record_count, base_offset))
        self.next = sequence_after(header.base_sequence, header.record_count)


class MemoryLog:
    """One partition: whole batches at offsets."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end = 0
        self.start = 0
        self.epochs: list[tuple[int, int]] = [(0, 0)]
        """Leader epochs with the offset of their first record."""
        self.stable: int | None = None
        self.aborted: list[tuple[int, int]] = []
        self.producers: dict[int, SequenceRules] = defaultdict(SequenceRules)

    def append(self, batch: bytes) -> ProduceOutcome:
        header = read_header(batch)
        rules = self.producers[header.producer_id]
        if header.producer_id >= 0:
            code, known_at = rules.check(header)
            if code or known_at >= 0:
                return ProduceOutcome(code, known_at)
        base_offset = self.end
        stamped = bytearray(batch)
        epoch = LeaderEpoch(self.epochs[-1][0])
        set_base_offset_and_epoch(stamped, 0, Offset(base_offset), epoch)
        self.batches.append(bytes(stamped))
        self.end += header.record_count
        rules.appended(header, base_offset)
        return ProduceOutcome(0, base_offset)

    def elect(self, epoch: int, end: int | None = None) -> None:
        """Begin an epoch; an unclean election loses the records from ``end`` on."""
        if end is not None:
            self.batches = [one for one in self.batches if read_header(one).last_offset < end]
            self.epochs = [entry for entry in self.epochs if entry[1] < end]
            self.end = end
        self.epochs.append((epoch, self.end))

    def epoch_end(self, epoch: int) -> tuple[int, int]:
        """As a leader answers OffsetForLeaderEpoch."""
        if epoch > self.epochs[-1][0]:
            return -1, -1
        known, ends = [one for one, _ in self.epochs], [start for _, start in self.epochs[1:]]
        at = max((at for at, one in enumerate(known) if one <= epoch), default=-1)
        return (epoch, self.epochs[0][1]) if at < 0 else (known[at], [*ends, self.end][at])

    def last_stable(self) -> int:
        """The test's; all is decided unless it says so."""
        return self.end if self.stable is None else self.stable

    def append_control(self, batch: bytes) -> None:
        stamped = bytearray(batch)
        set_base_offset_and_epoch(stamped, 0, Offset(self.end), LeaderEpoch(0))
        self.batches.append(bytes(stamped))
        self.end += 1

    def headers(self) -> list[BatchHeader]:
        return [read_header(batch) for batch in self.batches]

    def records(self) -> list[Record]:
        return [
            record
            for batch in self.batches
            for record in read_records(memoryview(batch), read_header(batch))
        ]

    def read(self, offset: int, bytes_max: int, end: int) -> bytes:
        read = b""
        for batch in self.batches:
            if not offset <= read_header(batch).last_offset < end:
                continue
            if read and len(read) + len(batch) > bytes_max:
                break
            read += batch
        return read


class MemoryTransport:
    """Two brokers; ``leaders`` may be changed, ``faults`` are taken by the next produce or fetch
    requests in turn: "lost" (never arrives), "unanswered" (arrives, the answer is lost) or an
    ErrorCode.
    """

    def __init__(self, *, partitions: int = 1, topic: str = "t") -> None:
        self.partitions = [TopicPartition(topic, number) for number in range(partitions)]
        self.logs = {partition: MemoryLog() for partition in self.partitions}
        self.leaders = {partition: 1 + partition.partition % 2 for partition in self.partitions}
        self.faults: deque[str | ErrorCode] = deque()
        self.epoch_faults: deque[ErrorCode | ClientError] = deque()
        self.validated: list[EpochItem] = []
        self.requests = 0
        self.outside = 0
        """Number of reads outside of a log."""
        self.transactional_ids: list[str | None] = []
        self.held = asyncio.Event()
        self.held.set()
        self._producer_ids = 1000
        self._changed = asyncio.Event()

    async def describe(self, topics: Sequence[str] | None, *, auto_create: bool) -> ClusterView:
        names = {partition.topic for partition in self.partitions}
        return ClusterView(
            {number: BrokerView(number, Address("memory", number)) for number in (1, 2)},
            {
                name: TopicView(
                    name,
                    TOPIC_ID,
                    0,
                    tuple(
                        PartitionView(p.partition, self.leaders[p], self.logs[p].epochs[-1][0])
                        for p in self.partitions
                    ),
                )
                if name in names
                else TopicView(name, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
                for name in (names if topics is None else topics)
            },
            "memory",
            1,
        )

    def _view(self, name: str) -> TopicView:
        views = [
            PartitionView(each.partition, self.leaders[each], self.logs[each].epochs[-1][0])
            for each in self.partitions
        ]
        return TopicView(name, TOPIC_ID, 0, tuple(views))

    async def init_producer_id(self) -> ProducerIdentity:
        self._producer_ids += 1
        return ProducerIdentity(self._producer_ids, 0)

    async def produce(
        self,
        broker_id: int,
        items: Sequence[ProduceItem],
        *,
        acks: int,
        timeout_ms: int,
        transactional_id: str | None = None,
    ) -> list[ProduceOutcome]:
        await self.held.wait()
        self.transactional_ids.append(transactional_id)
        self.requests += 1
        fault = self.faults.popleft() if self.faults else None
        if fault == "lost":
            raise ConnectionLostError(ErrorCode.NETWORK_EXCEPTION, "lost on the way")
        if isinstance(fault, ErrorCode):
            return [ProduceOutcome(fault)] * len(items)
        outcomes = [self._append(broker_id, item) for item in items]
        await asyncio.sleep(0)
        if fault == "unanswered":
            raise ConnectionLostError(ErrorCode.NETWORK_EXCEPTION, "lost on the way back")
        return outcomes

    def _append(self, broker_id: int, item: ProduceItem) -> ProduceOutcome:
        if self.leaders[item.partition] != broker_id:
            return ProduceOutcome(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        self._changed.set()
        return self.logs[item.partition].append(item.batch)

    def fetch_group(self, broker_id: int, partition: TopicPartition) -> Hashable:
        return broker_id

    async def fetch(
        self, broker_id: int, items: Sequence[FetchItem], limits: FetchLimits
    ) -> list[FetchOutcome]:
        self.requests += 1
        fault = self.faults.popleft() if self.faults else None
        if fault == "lost":
            raise ConnectionLostError(ErrorCode.NETWORK_EXCEPTION, "lost on the way")
        if isinstance(fault, ErrorCode):
            return [FetchOutcome(item.partition, item.fetch_offset, fault) for item in items]
        outcomes = self._read(broker_id, items, limits)
        if not any(outcome.records or outcome.error_code for outcome in outcomes):
            self._changed.clear()
            try:
                async with asyncio.timeout(limits.wait_ms_max / 1_000):
                    await self._changed.wait()
            except TimeoutError:
                pass
            outcomes = self._read(broker_id, items, limits)
        return outcomes

    def _read(
        self, broker_id: int, items: Sequence[FetchItem], limits: FetchLimits
    ) -> list[FetchOutcome]:
        outcomes = []
        for part, _, epoch, offset in items:
            log = self.logs[part]
            if epoch not in (-1, log.epochs[-1][0]):
                outcomes.append(FetchOutcome(part, offset, ErrorCode.FENCED_LEADER_EPOCH))
            elif self.leaders[part] != broker_id:
                outcomes.append(FetchOutcome(part, offset, ErrorCode.NOT_LEADER_OR_FOLLOWER))
            elif not log.start <= offset <= log.end:
                self.outside += 1
                code = ErrorCode.OFFSET_OUT_OF_RANGE
                outcomes.append(FetchOutcome(part, offset, code, log_start=log.start))
            else:
                stable = log.last_stable()
                end = stable if limits.read_committed else log.end
                records = memoryview(log.read(offset, limits.partition_bytes_max, end))
                aborted = tuple(log.aborted) if limits.read_committed else ()
                outcomes.append(
                    FetchOutcome(part, offset, 0, log.end, stable, log.start, records, aborted)
                )
        return outcomes

    async def epoch_ends(self, broker_id: int, items: Sequence[EpochItem]) -> list[EpochOutcome]:
        self.validated += items
        fault = self.epoch_faults.popleft() if self.epoch_faults else None
        if isinstance(fault, ClientError):
            raise fault
        return [
            EpochOutcome(one.partition, fault or 0, *self.logs[one.partition].epoch_end(one.epoch))
            for one in items
        ]

    async def list_offsets(
        self, broker_id: int, items: Sequence[OffsetItem], *, read_committed: bool
    ) -> list[OffsetOutcome]:
        outcomes = []
        for part, _, _, timestamp in items:
            log = self.logs[part]
            if timestamp == -1:
                end = log.last_stable() if read_committed else log.end
                outcomes.append(OffsetOutcome(part, 0, end))
            elif timestamp == -2:
                outcomes.append(OffsetOutcome(part, 0, log.start))
            else:
                young = [each for each in log.records() if each.timestamp >= timestamp]
                found = (young[0].offset, young[0].timestamp) if young else (-1, -1)
                outcomes.append(OffsetOutcome(part, 0, *found))
        return outcomes

    def where(self, broker_id: int) -> str:
        return f"memory broker {broker_id}"

    async def close(self) -> None:
        pass
