"""Order in which the markers of ended transactions are sent to the leaders of their partitions.

While answers come soon, one WriteMarkers request is in flight to a broker at a time, with every
marker queued meanwhile; brokers do not wait for one another. A marker is sent until it is written,
its partition no longer exists, or the shard has another owner. A partition that the metadata does
not show no longer exists. A shard is loaded once the metadata has shown its acquisition, and with
that every partition that an earlier owner may have added. A leader lets a transaction begin in a
partition only after a coordinator whose metadata shows that very topic has agreed, so that a topic
that was deleted and created again is not taken for the one that no longer exists. The number of
markers under way is bounded by the open transactions of the shards, whose state names them again
after a reload.

    Send --> route --> a broker's queue --> WriteMarkers --> written: Report once all are
               ^                                 |
               +---- parked until later <--------+ an error that may pass, or no leader
"""

import heapq
import itertools
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from tidemark.model.backoff import Backoff, Dice
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import BrokerId, InstantMs
from tidemark.model.metadata import ClusterImage, FeedPosition
from tidemark.model.partition_leader import find_leader, find_partition
from tidemark.model.topics import TopicPartition

from txn_coordinator.core.effects import SendMarkers
from txn_coordinator.core.marker_inputs import (
    AbandonRequest,
    Answered,
    BrokerFailed,
    BrokerRecovered,
    CallFailed,
    Effect,
    Fenced,
    Forget,
    ImageChanged,
    Input,
    MarkerPart,
    MarkerRefused,
    PartitionsGone,
    Report,
    Send,
    Tick,
    WriteMarkers,
)
from txn_coordinator.core.marker_states import (
    PARKED,
    QUEUED,
    SENT,
    UNDER_WAY,
    Cause,
    Ending,
    MarkerState,
)
from txn_coordinator.core.requests import MarkersWritten

_BACKOFF: Final = Backoff(20, 1_000)
_PASSED_BY: Final = ErrorCode.INVALID_PRODUCER_EPOCH
"""The partition has this epoch's marker, or a later epoch: there is nothing left to end."""


@dataclass(frozen=True, slots=True)
class MarkerLimits:
    """Bounds of requests, and delays between them."""

    targets_per_request_max: int = 5_000
    requests_in_flight_max: int = 8
    """Requests in flight to one broker."""
    patience_ms: int = 100
    """A request without an answer for so long does not delay the next one."""
    backoff: Backoff = _BACKOFF

    def __post_init__(self) -> None:
        assert self.targets_per_request_max > 0, "a request holds a marker"
        assert self.requests_in_flight_max > 0, "a request must be possible"
        assert self.patience_ms > 0, "a request may be answered before the next"
        assert 0 < self.backoff.first_ms <= self.backoff.max_ms, "delays grow from the first"


class _Part(NamedTuple):
    """Partitions of one effect that one broker leads, or that are parked together."""

    ending: Ending
    partitions: list[TopicPartition]


class _Turn(NamedTuple):
    """The newest request to a broker, which the next one waits for."""

    request: int
    position: FeedPosition
    """Position of the image under which it was sent."""
    patience_ends: InstantMs


@dataclass(eq=False, slots=True)
class _Queue:
    """Markers for one broker."""

    broker_id: BrokerId
    waiting: dict[Ending, list[TopicPartition]] = field(default_factory=dict)
    under_way: dict[int, list[_Part]] = field(default_factory=dict)
    """Parts of each request in flight."""
    failures: int = 0
    """Requests in a row without an answer."""
    turn: _Turn | None = None
    pause_ends: InstantMs | None = None
    """After a failure, so that not every new marker is tried at once."""

    def take(self, targets_max: int) -> list[_Part]:
        """Remove and return the oldest, up to ``targets_max`` partitions."""
        taken: list[_Part] = []
        room = targets_max
        while self.waiting and room > 0:
            ending, partitions = next(iter(self.waiting.items()))
            taken.append(_Part(ending, partitions[:room]))
            if len(partitions) <= room:
                del self.waiting[ending]
            else:
                self.waiting[ending] = partitions[room:]
            room -= len(taken[-1].partitions)
        return taken

    def next_deadline(self, now: InstantMs, requests_max: int) -> InstantMs | None:
        """Return the time of the next Tick that changes this queue; None if none does."""
        if self.turn is not None:
            return max(now, self.turn.patience_ends)
        if not self.waiting or len(self.under_way) >= requests_max:
            return None
        return now if self.pause_ends is None else max(now, self.pause_ends)


class MarkerQueue:
    """Markers of all shards of one process.

    Invariant: a marker under way is in one place, which its state names: a heap of parked ones, the
    queue of one broker, or one request in flight.
    """

    def __init__(self, limits: MarkerLimits, dice: Dice) -> None:
        self._limits = limits
        self._dice = dice
        self._image = ClusterImage()
        self._endings: dict[int, dict[SendMarkers, Ending]] = {}
        self._queues: dict[BrokerId, _Queue] = {}
        self._asked: dict[int, _Queue] = {}
        self._requests = itertools.count()
        self._parked: list[tuple[InstantMs, int, _Part]] = []
        self._parked_ids = itertools.count()
        self._now = InstantMs(0)
        self._effects: list[Effect] = []

    @property
    def ending_count(self) -> int:
        """Effects whose markers are not all written."""
        return sum(map(len, self._endings.values()))

    @property
    def parked_count(self) -> int:
        """Markers that wait for a leader, or for another try."""
        return sum(len(part.partitions) for _, _, part in self._parked)

    def queued_counts(self) -> dict[BrokerId, int]:
        """Return the numbers of markers that wait for the request in flight, by broker."""
        return {
            broker_id: sum(map(len, queue.waiting.values()))
            for broker_id, queue in self._queues.items()
        }

    def step(self, stimulus: Input, now: InstantMs) -> list[Effect]:
        """Take one input to completion. Never waits."""
        self._now = now
        match stimulus:
            case Send():
                self._send(stimulus)
            case Forget(shard):
                self._forget(shard)
            case ImageChanged(image):
                self._see(image)
            case Answered(request, codes):
                self._on_answered(request, codes)
            case CallFailed(request, reason):
                self._on_failed(request, reason)
            case Tick():
                self._tick()
        effects, self._effects = self._effects, []
        return effects

    def next_deadline(self, now: InstantMs) -> InstantMs | None:
        """Return when a Tick is due; None while nothing waits for time."""
        requests_max = self._limits.requests_in_flight_max
        dues = [queue.next_deadline(now, requests_max) for queue in self._queues.values()]
        if self._parked:
            dues.append(max(now, self._parked[0][0]))
        return min((due for due in dues if due is not None), default=None)

    def check(self) -> None:
        """Assert every invariant."""
        places = Counter(self._places())
        expected: Counter[tuple[Ending, TopicPartition, MarkerState]] = Counter()
        for of_shard in self._endings.values():
            for ending in of_shard.values():
                ending.check()
                assert not ending.is_over, "what is over is not kept"
                expected.update(
                    (ending, at, state)
                    for at, state in ending.markers.items()
                    if state in UNDER_WAY
                )
        assert places == expected, "each marker is where its state says"
        for queue in self._queues.values():
            assert len(queue.under_way) <= self._limits.requests_in_flight_max, "bounded requests"
            assert queue.turn is None or queue.turn.request in queue.under_way, (
                "a turn is in flight"
            )

    def _places(self) -> Iterable[tuple[Ending, TopicPartition, MarkerState]]:
        parts = [(part, PARKED) for _, _, part in self._parked]
        for queue in self._queues.values():
            parts += [(_Part(*waiting), QUEUED) for waiting in queue.waiting.items()]
            parts += [(part, SENT) for sent in queue.under_way.values() for part in sent]
        for (ending, partitions), state in parts:
            if not ending.is_over:
                yield from ((ending, partition, state) for partition in partitions)

    # -- requests of the shards

    def _send(self, send: Send) -> None:
        of_shard = self._endings.setdefault(send.shard, {})
        known = of_shard.get(send.effect)
        if known is not None:
            if known.owner_epoch == send.owner_epoch:
                return
            known.drop()
        ending = Ending(send.shard, send.owner_epoch, send.effect, self._now)
        of_shard[send.effect] = ending
        if not ending.unwritten:
            self._finish(ending)
            return
        self._route(ending, list(ending.markers))

    def _forget(self, shard: int) -> None:
        for ending in self._endings.pop(shard, {}).values():
            ending.drop()

    def _finish(self, ending: Ending) -> None:
        effect = ending.effect
        ending.is_over = True
        self._endings.get(ending.shard, {}).pop(effect, None)
        report = MarkersWritten(
            effect.transactional_id,
            effect.producer_id,
            effect.producer_epoch,
            effect.prepared_at,
            effect.partitions,
        )
        self._effects.append(Report(ending.shard, report, self._now - ending.since))

    # -- places of markers

    def _route(self, ending: Ending, partitions: Iterable[TopicPartition]) -> None:
        """Queue each marker for its leader. It is parked without one, and done if the partition is
        gone.
        """
        parked: list[TopicPartition] = []
        gone: list[TopicPartition] = []
        for partition in partitions:
            leader = find_leader(self._image, partition)
            if leader is not None:
                ending.move((partition,), Cause.LEADER_FOUND)
                self._queue(leader.broker_id).waiting.setdefault(ending, []).append(partition)
            elif find_partition(self._image, partition) is None:
                gone.append(partition)
            else:
                parked.append(partition)
        if gone:
            self._effects.append(PartitionsGone(ending.effect.transactional_id, len(gone)))
            self._settle(ending, gone, Cause.PARTITION_GONE)
        if parked:
            self._park(ending, parked, Cause.NO_LEADER)

    def _queue(self, broker_id: BrokerId) -> _Queue:
        """Return the queue of a broker, for a marker. Queues stay in the order in which they were
        filled.
        """
        queue = self._queues.get(broker_id) or _Queue(broker_id)
        if not queue.waiting:
            self._queues.pop(broker_id, None)
            self._queues[broker_id] = queue
        return queue

    def _park(self, ending: Ending, partitions: list[TopicPartition], cause: Cause) -> None:
        """Try again later, or when the metadata changes."""
        if ending.is_over:
            return
        ending.move(partitions, cause)
        ending.failures += 1
        due = self._after_failures(ending.failures)
        heapq.heappush(self._parked, (due, next(self._parked_ids), _Part(ending, partitions)))

    def _after_failures(self, failures: int) -> InstantMs:
        delay_ms = self._limits.backoff.delay_ms(failures, self._dice())
        return InstantMs(self._now + round(delay_ms))

    def _settle(self, ending: Ending, partitions: Iterable[TopicPartition], cause: Cause) -> None:
        ending.move(partitions, cause)
        if not ending.unwritten:
            self._finish(ending)

    def _see(self, image: ClusterImage) -> None:
        """Take a newer image, in which parked markers may have a leader."""
        self._image = image
        for queue in tuple(self._queues.values()):
            queue.pause_ends = None
            self._abandon_moved(queue)
        parked, self._parked = self._parked, []
        for _, _, part in parked:
            self._route_again(part)

    def _abandon_moved(self, queue: _Queue) -> None:
        """Wait no longer for a broker that leads no partition of its request: it may be paused or
        cut off.
        """
        for request, parts in list(queue.under_way.items()):
            if not any(self._leads(queue, at) for part in parts for at in part.partitions):
                self._effects.append(AbandonRequest(request))
                self._close(request)
                self._park_all(parts)

    def _leads(self, queue: _Queue, partition: TopicPartition) -> bool:
        leader = find_leader(self._image, partition)
        return leader is not None and leader.broker_id == queue.broker_id

    def _route_again(self, part: _Part) -> None:
        if not part.ending.is_over:
            self._route(part.ending, part.partitions)

    # -- requests to one broker

    def _tick(self) -> None:
        while self._parked and self._parked[0][0] <= self._now:
            self._route_again(heapq.heappop(self._parked)[2])
        for queue in tuple(self._queues.values()):
            self._serve(queue)

    def _serve(self, queue: _Queue) -> None:
        """Send one request at a time while answers come soon. A request that waits for slow
        replicas must not delay all others: after ``patience_ms`` there are more, up to a bound.
        """
        if queue.turn is not None and queue.turn.patience_ends <= self._now:
            self._end_turn(queue)
        requests_max = self._limits.requests_in_flight_max
        while queue.waiting and queue.next_deadline(self._now, requests_max) == self._now:
            queue.pause_ends = None
            parts = self._take_led(queue)
            if parts:
                self._ask(queue, parts)

    def _take_led(self, queue: _Queue) -> list[_Part]:
        """Return the markers for the next request. Markers with another leader are rerouted."""
        kept: list[_Part] = []
        for ending, partitions in queue.take(self._limits.targets_per_request_max):
            if ending.is_over:
                continue
            led: list[TopicPartition] = []
            moved: list[TopicPartition] = []
            for partition in partitions:
                (led if self._leads(queue, partition) else moved).append(partition)
            if led:
                ending.move(led, Cause.TAKEN)
                kept.append(_Part(ending, led))
            if moved:
                self._route(ending, moved)
        return kept

    def _ask(self, queue: _Queue, parts: list[_Part]) -> None:
        request = next(self._requests)
        patience_ends = InstantMs(self._now + self._limits.patience_ms)
        queue.turn = _Turn(request, self._image.position, patience_ends)
        queue.under_way[request] = parts
        self._asked[request] = queue
        wire_parts = tuple(
            MarkerPart(ending.effect, ending.owner_epoch, tuple(partitions))
            for ending, partitions in parts
        )
        self._effects.append(WriteMarkers(request, queue.broker_id, wire_parts))

    def _close(self, request: int) -> None:
        queue = self._asked.pop(request)
        del queue.under_way[request]
        if queue.turn is not None and queue.turn.request == request:
            self._end_turn(queue)

    def _end_turn(self, queue: _Queue) -> None:
        """Let the next request follow: after a failure with a pause, unless the metadata changed in
        the meantime.
        """
        assert queue.turn is not None, "a turn ends once"
        if queue.failures:
            pause_ends = self._after_failures(queue.failures)
            is_newer = self._image.position > queue.turn.position
            queue.pause_ends = None if is_newer else pause_ends
        queue.turn = None

    def _park_all(self, parts: Iterable[_Part]) -> None:
        for ending, partitions in parts:
            self._park(ending, partitions, Cause.UNANSWERED)

    # -- answers

    def _on_failed(self, request: int, reason: str) -> None:
        queue = self._asked.get(request)
        if queue is None:
            return  # abandoned
        if not queue.failures:
            self._effects.append(BrokerFailed(queue.broker_id, reason))
        queue.failures += 1
        self._park_all(queue.under_way[request])
        self._close(request)

    def _on_answered(self, request: int, codes: Sequence[Sequence[ErrorCode]]) -> None:
        queue = self._asked.get(request)
        if queue is None:
            return  # abandoned
        for index, part in enumerate(queue.under_way[request]):
            self._judge(queue.broker_id, part, codes[index] if index < len(codes) else ())
        if queue.failures:
            self._effects.append(BrokerRecovered(queue.broker_id))
        queue.failures = 0
        self._close(request)

    def _judge(self, broker_id: BrokerId, part: _Part, answered: Sequence[ErrorCode]) -> None:
        """Settle or park each marker of one transaction. A missing answer is an error."""
        ending, partitions = part
        if ending.is_over:
            return
        missing = len(partitions) - len(answered)
        codes = [*answered, *[ErrorCode.UNKNOWN_SERVER_ERROR] * missing]
        if ErrorCode.TRANSACTION_COORDINATOR_FENCED in codes:
            self._forget(ending.shard)
            self._effects.append(Fenced(ending.shard, ending.owner_epoch))
            return
        written: list[TopicPartition] = []
        again: list[TopicPartition] = []
        for partition, code in zip(partitions, codes, strict=False):
            (written if code in (ErrorCode.NONE, _PASSED_BY) else again).append(partition)
            if code is not ErrorCode.NONE:
                refused = MarkerRefused(broker_id, ending.effect, partition, code)
                self._effects.append(refused)
        if written:
            self._settle(ending, written, Cause.ACKNOWLEDGED)
        if again:
            self._park(ending, again, Cause.UNANSWERED)
