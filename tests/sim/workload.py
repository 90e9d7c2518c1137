"""Clients of the partitions: producers with several batches in flight, and readers that remember
what they read.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from tidemark.codec.record_batch import CRC_START, HEADER_BYTES, BatchHeader, read_header
from tidemark.codec.records import build_batch
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs
from tidemark.model.topics import TopicPartition

from sim.checkers import (
    Fetched,
    ReaderMemory,
    check_acknowledged,
    check_fetched,
    check_repeated,
    check_watermark,
    require,
    whole_batches,
)
from sim.network import Connection
from sim.node import FetchAnswer, Hosted, ProduceAnswer

if TYPE_CHECKING:
    from sim.simulator import Simulator

ANSWER_WAIT_MS: Final = 250
IN_FLIGHT_MAX: Final = 5
KEYS: Final = 6
SEQUENCE_NEAR_WRAP: Final = 2**31 - 40
_GIVEN_UP: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.INVALID_TIMESTAMP,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.INVALID_RECORD,
        ErrorCode.INVALID_REQUIRED_ACKS,
    }
)


@dataclass(eq=False)
class Sent:
    """One batch under way."""

    records: list[tuple[int, bytes | None, bytes | None, tuple[()]]]
    sequence: int
    epoch: int
    compression: int
    sent_at: int = 0
    is_refused: bool = False
    """True if it waits to be sent again. Until then nothing new is sent."""


class Producer:
    """Client with the behaviour of real ones: batches in order, retried in order, renumbered after
    a reset.
    """

    def __init__(self, sim: "Simulator", number: int, topic_partition: TopicPartition) -> None:
        dice = sim.dice
        self.name = f"producer{number}"
        self._sim = sim
        self.topic_partition = topic_partition
        self._is_idempotent = dice.chance(0.7)
        self.producer_id = 1_000 + number if self._is_idempotent else -1
        self._epoch = 0 if self._is_idempotent else -1
        self._acks = -1 if self._is_idempotent else dice.pick((-1, 1, 1, 0))
        near_wrap = self._is_idempotent and dice.chance(0.2)
        self._sequence = SEQUENCE_NEAR_WRAP if near_wrap else 0
        self._window: list[Sent] = []
        self._connection: Connection | None = None
        self._pace_ms = dice.pick((10, 20, 40, 80))
        self._written = 0

    @property
    def is_idle(self) -> bool:
        return not self._window

    def start(self) -> None:
        """Send at random intervals until the workload stops."""
        self._sim.after(self._sim.dice.between(1, self._pace_ms), self._turn)

    def _turn(self) -> None:
        sim = self._sim
        self._look_after_answers()
        is_blocked = self._is_idempotent and any(one.is_refused for one in self._window)
        if not sim.is_draining and not is_blocked and len(self._window) < IN_FLIGHT_MAX:
            self._send(self._compose())
        if not sim.is_over:
            sim.after(sim.dice.between(1, 2 * self._pace_ms), self._turn)

    def _look_after_answers(self) -> None:
        """Reconnect and send all batches again if responses are late or the node died."""
        if not self._window or self._sim.node is None:
            return
        waited = self._sim.now - self._window[0].sent_at
        alone = self._connection is None or self._connection.life != self._sim.node.life
        impatient = self._sim.dice.chance(0.02)
        if waited > ANSWER_WAIT_MS or alone or impatient:
            self._reconnect()

    def _reconnect(self) -> None:
        if self._connection is not None:
            self._connection.break_off()
            self._connection = None
        for sent in tuple(self._window):
            self._transmit(sent)

    def _compose(self) -> Sent:
        sim, dice = self._sim, self._sim.dice
        keyed = sim.topics[self.topic_partition].config.is_compacted
        records: list[tuple[int, bytes | None, bytes | None, tuple[()]]] = []
        for _ in range(dice.between(1, 4)):
            self._written += 1
            value = b"%s.%d " % (self.name.encode(), self._written) + b"x" * dice.between(0, 60)
            tombstone = keyed and dice.chance(0.15)
            key = b"k%d" % dice.between(0, KEYS) if keyed or dice.chance(0.5) else None
            stamp = sim.now - dice.between(0, 30)
            records.append((stamp, key, None if tombstone else value, ()))
        sent = Sent(records, self._sequence, self._epoch, dice.weighted(((0, 9), (3, 1))))
        if self._is_idempotent:
            self._sequence = (self._sequence + len(records)) % 2**31
        return sent

    def _send(self, sent: Sent) -> None:
        self._window.append(sent)
        self._transmit(sent)
        if self._acks == 0:
            self._window.remove(sent)

    def _transmit(self, sent: Sent) -> None:
        sim = self._sim
        if sim.node is None:
            return
        if self._connection is None or self._connection.is_broken:
            self._connection = Connection(sim, sim.dice, life=sim.node.life)
        connection = self._connection
        sent.sent_at, sent.is_refused = sim.now, False
        batch = build_batch(
            sent.records,
            compression=sent.compression,
            producer_id=self.producer_id,
            producer_epoch=sent.epoch,
            base_sequence=sent.sequence if self._is_idempotent else -1,
        )
        sim.sent_payloads.add(batch[HEADER_BYTES:])
        if self._acks == 0 and sim.dice.chance(0.05):
            batch = self._spoiled(batch)
        on_answer = partial(self._on_answer, sent, sent.sequence, sent.epoch, connection)
        connection.request(lambda: self._arrive(connection, batch, on_answer))

    def _spoiled(self, batch: bytes) -> bytes:
        """Return the batch with a wrong byte: it is refused, or never becomes readable."""
        at = self._sim.dice.between(CRC_START, len(batch) - 1)
        return batch[:at] + bytes([batch[at] ^ 0x55]) + batch[at + 1 :]

    def _arrive(
        self, connection: Connection, batch: bytes, on_answer: Callable[[ProduceAnswer], None]
    ) -> None:
        sim, node = self._sim, self._sim.node
        if node is None or node.life != connection.life:
            return
        header = read_header(batch)
        node.now = sim.now
        node.produce(
            self.topic_partition,
            bytearray(batch),
            self._acks,
            lambda answer: self._replied(header, connection, answer, on_answer),
        )
        sim.note(
            self.name,
            f"produce e{header.producer_epoch} s{header.base_sequence}+{header.record_count}"
            f" acks={self._acks}",
            self.topic_partition,
        )

    def _replied(
        self,
        header: BatchHeader,
        connection: Connection,
        answer: ProduceAnswer,
        on_answer: Callable[[ProduceAnswer], None],
    ) -> None:
        """Record the response: the node must keep to it, whether it arrives or not."""
        history = self._sim.history_of(self.topic_partition)
        asked = (header.producer_id, header.producer_epoch, header.base_sequence)
        if answer.error_code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER and history is not None:
            check_repeated(history, asked=asked)
        if answer.error_code == ErrorCode.NONE and self._acks != 0 and history is not None:
            written = check_acknowledged(history, base_offset=answer.base_offset, asked=asked)
            written.is_acknowledged = True
        connection.answer(lambda: on_answer(answer))

    def _on_answer(
        self, sent: Sent, sequence: int, epoch: int, connection: Connection, answer: ProduceAnswer
    ) -> None:
        if sent not in self._window or (sent.sequence, sent.epoch) != (sequence, epoch):
            return
        code = answer.error_code
        self._sim.note(self.name, f"hears {code.name} {answer.base_offset}", self.topic_partition)
        if code == ErrorCode.NONE:
            self._window.remove(sent)
        elif code in _GIVEN_UP or code == ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
            require(self._is_idempotent or code not in _GIVEN_UP, "good batches are taken", code)
            self._window.remove(sent)
        elif sent is self._window[0] and code in (
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            ErrorCode.INVALID_PRODUCER_EPOCH,
        ):
            self._reset()
        else:
            sent.is_refused = True

    def _reset(self) -> None:
        """Begin a new epoch with sequence 0: the partition lost the producer's state (KIP-360)."""
        self._epoch += 1
        self._sequence = 0
        for sent in self._window:
            sent.epoch, sent.sequence = self._epoch, self._sequence
            self._sequence += len(sent.records)
        self._reconnect()


class Reader:
    """Reader that fetches from some offset on, long-polls, remembers what it read, and sometimes
    sends file slices late.
    """

    def __init__(self, sim: "Simulator", number: int, topic_partition: TopicPartition) -> None:
        self.name = f"reader{number}"
        self._sim = sim
        self.topic_partition = topic_partition
        self._offset = 0
        self._is_parked = False
        self._bytes_max = sim.dice.pick((1, 200, 1_000, 100_000))
        self._pace_ms = sim.dice.pick((15, 30, 60))
        self._sees_bytes = not sim.topics[topic_partition].config.is_compacted
        self.memory = ReaderMemory()

    def start(self) -> None:
        """Read at random intervals, until the end."""
        self._sim.after(self._sim.dice.between(1, self._pace_ms), self._turn)

    def forget_from(self, offset: int) -> None:
        """Forget batches beyond ``offset``: a crash was allowed to take them."""
        self.memory.forget_from(offset)
        self._offset = min(self._offset, offset)

    def start_over(self) -> None:
        """Begin again: the topic was replaced."""
        self.memory = ReaderMemory()
        self._offset = 0

    def _turn(self) -> None:
        sim = self._sim
        parked = sim.node is not None and self._fetch()
        if not sim.is_over and not parked:
            sim.after(sim.dice.between(1, 2 * self._pace_ms), self._turn)

    def _fetch(self) -> bool:
        """Return True if the fetch was parked: the wake then schedules the next turn."""
        sim, node = self._sim, self._sim.node
        assert node is not None
        node.now = sim.now
        answer = node.fetch(self.topic_partition, self._offset, self._bytes_max)
        history = sim.history_of(self.topic_partition)
        hosted = node.hosted.get(self.topic_partition)
        if history is None or hosted is None or answer.high_watermark < 0:
            return False
        check_watermark(history, answer.high_watermark)
        if answer.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._out_of_range(answer, hosted)
        elif answer.read is not None:
            self._take(answer, hosted)
        elif sim.dice.chance(0.5):
            return self._park(hosted)
        else:
            self._seek(answer)
        return False

    def _park(self, hosted: Hosted) -> bool:
        sim, node = self._sim, self._sim.node
        assert node is not None
        life = node.life

        def wake(fulfilled: bool) -> None:
            sim.note(self.name, "wakes" if fulfilled else "waited", self.topic_partition)
            if life == sim.disk.life:
                self._is_parked = False
                sim.after(1, self._turn)

        parked = node.parked.park_fetch(
            (hosted,), bytes_missing=1, now=InstantMs(sim.now), wait_ms=150, wake=wake
        )
        self._is_parked = parked is not None
        return self._is_parked

    def resume(self) -> None:
        """Continue on the node that started: a long poll in the old one is gone."""
        if not self._is_parked:
            return
        self._is_parked = False
        self._sim.after(self._sim.dice.between(1, self._pace_ms), self._turn)

    def _out_of_range(self, answer: FetchAnswer, hosted: Hosted) -> None:
        outside = not answer.log_start <= self._offset <= hosted.partition.log_end
        require(outside, "an offset in the log is in range", self._offset)
        self._offset = answer.log_start

    def _seek(self, answer: FetchAnswer) -> None:
        """Jump to another offset sometimes, as a new group would."""
        if self._sim.dice.chance(0.1):
            self._offset = self._sim.dice.between(answer.log_start, answer.high_watermark)

    def _take(self, answer: FetchAnswer, hosted: Hosted) -> None:
        sim, read = self._sim, answer.read
        assert read is not None
        if sim.dice.chance(0.15):
            # Queued on a slow connection: the files are held open meanwhile.
            offset, history = self._offset, sim.history_of(self.topic_partition)
            sim.after(
                sim.dice.between(5, 60), lambda: self._take_late(answer, offset, hosted, history)
            )
        fetched = Fetched(
            self._offset,
            answer.high_watermark,
            b"".join(one.file.read_at(one.position, one.length) for one in read.slices),
        )
        sim.note(self.name, f"reads {self._offset}, {len(fetched.records)} B", self.topic_partition)
        history = sim.history_of(self.topic_partition)
        assert history is not None
        self._offset = check_fetched(history, fetched)
        if self._sees_bytes:
            for header, _ in whole_batches(fetched):
                self.memory.saw(header)

    def _take_late(self, answer: FetchAnswer, offset: int, hosted: Hosted, history: object) -> None:
        """Check slices that are sent later: the same records, or void because the file was cut."""
        sim, read = self._sim, answer.read
        assert read is not None
        now_history = sim.history_of(self.topic_partition)
        same = sim.node is not None and sim.node.hosted.get(self.topic_partition) is hosted
        if not same or now_history is None or now_history is not history:
            return
        if any(one.position + one.length > one.file.truncated_to for one in read.slices):
            return
        records = b"".join(one.file.read_at(one.position, one.length) for one in read.slices)
        check_fetched(now_history, Fetched(offset, answer.high_watermark, records))
