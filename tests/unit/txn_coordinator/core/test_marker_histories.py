"""Random histories of the queue of markers: leaders that move or vanish, answers that are late,
partial, refused or lost, shards that are reloaded.

The model has what was asked for and what brokers wrote. It holds:

* an effect is reported at most once per ``Send``, and only when each of its partitions is written
  under that owner epoch, beyond the epoch, or was gone at some time since;
* a request goes to the leader of all its partitions, and no broker has more than the bound;
* once brokers answer and every partition has a leader, every effect that still counts is reported.
"""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tidemark.model.backoff import EVEN, Backoff
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs
from tidemark.model.topics import TopicPartition
from txn_coordinator.core.effects import SendMarkers
from txn_coordinator.core.marker_inputs import (
    AbandonRequest,
    Answered,
    CallFailed,
    Effect,
    Fenced,
    Forget,
    ImageChanged,
    Input,
    Report,
    Send,
    Tick,
    WriteMarkers,
)
from txn_coordinator.core.marker_queue import MarkerLimits, MarkerQueue
from unit.txn_coordinator.marker_images import image_of

PARTITIONS = [TopicPartition("a", number) for number in range(4)]
SHARDS = (0, 1)
REQUESTS_MAX = 2
LIMITS = MarkerLimits(3, REQUESTS_MAX, 50, Backoff(10, 80))
SETTLED = (ErrorCode.NONE, ErrorCode.INVALID_PRODUCER_EPOCH)
CODES = [*SETTLED, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_SERVER_ERROR]
CALM_TICKS_MAX = 1_000

Key = tuple[int, int, SendMarkers]
"""Shard, owner epoch, effect."""

names = st.sampled_from(["t", "u", "v"])
some_partitions = st.lists(st.sampled_from(PARTITIONS), unique=True, max_size=4).map(tuple)
leaders = st.lists(st.sampled_from([-1, 1, 2]), max_size=4)


class Histories(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.queue = MarkerQueue(LIMITS, lambda: EVEN)
        self.now = 0
        self.version = 0
        self.leaders: list[int] = []
        self.epochs = dict.fromkeys(SHARDS, 1)
        self.asked: dict[int, WriteMarkers] = {}
        self.wanted: dict[Key, set[TopicPartition]] = {}
        """Effects that are not reported, of shards that are neither forgotten nor fenced, with
        the partitions that need no marker any longer.
        """
        self.lead([1, 2, 1, 2])

    # Steps.

    def step(self, stimulus: Input) -> None:
        for effect in self.queue.step(stimulus, InstantMs(self.now)):
            self.take(effect)

    def take(self, effect: Effect) -> None:
        match effect:
            case WriteMarkers():
                self.take_request(effect)
            case AbandonRequest(request):
                abandoned = self.asked.pop(request)
                led = {self.leader(at) for part in abandoned.parts for at in part.partitions}
                assert abandoned.broker_id not in led
            case Report(shard, report, _):
                self.take_report(shard, report.transactional_id, report.partitions)
            case Fenced(shard, _):
                self.forgotten(shard)
            case _:
                pass

    def take_request(self, request: WriteMarkers) -> None:
        targets = [at for part in request.parts for at in part.partitions]
        assert 0 < len(targets) <= LIMITS.targets_per_request_max
        assert {self.leader(at) for at in targets} == {request.broker_id}
        self.asked[request.request] = request
        assert max(Counter(one.broker_id for one in self.asked.values()).values()) <= REQUESTS_MAX

    def take_report(self, shard: int, name: str, reported: tuple[TopicPartition, ...]) -> None:
        key = (shard, self.epochs[shard], effect_of(name, reported))
        assert key in self.wanted, "reported once, and only while it counts"
        assert set(reported) <= self.wanted.pop(key)

    def forgotten(self, shard: int) -> None:
        self.wanted = {key: done for key, done in self.wanted.items() if key[0] != shard}

    def want(self, shard: int, effect: SendMarkers) -> None:
        key = (shard, self.epochs[shard], effect)
        self.wanted.setdefault(key, set()).update(PARTITIONS[len(self.leaders) :])
        self.step(Send(*key))

    def leader(self, at: TopicPartition) -> int | None:
        return self.leaders[at.partition] if at.partition < len(self.leaders) else None

    def lead(self, of_partitions: list[int]) -> None:
        self.leaders = of_partitions
        for settled in self.wanted.values():
            settled.update(PARTITIONS[len(of_partitions) :])
        self.version += 1
        self.step(ImageChanged(image_of(self.version, {1: "h:1", 2: "h:2"}, {"a": of_partitions})))

    def answer(self, request: int, codes: list[list[ErrorCode]]) -> None:
        for part, row in zip(self.asked.pop(request).parts, codes, strict=False):
            written = {
                at for at, code in zip(part.partitions, row, strict=False) if code in SETTLED
            }
            shard = int(part.effect.transactional_id[0])
            self.wanted.get((shard, part.owner_epoch, part.effect), set()).update(written)
        self.step(Answered(request, codes))

    # Rules.

    @rule(shard=st.sampled_from(SHARDS), name=names, partitions=some_partitions)
    def send(self, shard: int, name: str, partitions: tuple[TopicPartition, ...]) -> None:
        self.want(shard, effect_of(f"{shard}-{name}", partitions))

    @rule(shard=st.sampled_from(SHARDS), was_dropped=st.booleans())
    def reload(self, shard: int, was_dropped: bool) -> None:
        """Give the shard another owner epoch, which requests the same markers again."""
        effects = [key[2] for key in self.wanted if key[0] == shard]
        self.forgotten(shard)
        if was_dropped:
            self.step(Forget(shard))
        self.epochs[shard] += 1
        for effect in sorted(effects, key=str):
            self.want(shard, effect)

    @rule(of_partitions=leaders)
    def move(self, of_partitions: list[int]) -> None:
        self.lead(of_partitions)

    @rule(passed_ms=st.integers(0, 100))
    def tick(self, passed_ms: int) -> None:
        self.now += passed_ms
        self.step(Tick())

    @precondition(lambda self: bool(self.asked))
    @rule(data=st.data())
    def some_answer(self, data: st.DataObject) -> None:
        request = data.draw(st.sampled_from(sorted(self.asked)))
        rows = st.lists(st.lists(st.sampled_from(CODES), max_size=3), max_size=3)
        self.answer(request, data.draw(rows))

    @precondition(lambda self: bool(self.asked))
    @rule(data=st.data(), was_fenced=st.booleans())
    def no_answer(self, data: st.DataObject, was_fenced: bool) -> None:
        request = data.draw(st.sampled_from(sorted(self.asked)))
        if was_fenced:
            self.answer(request, [[ErrorCode.TRANSACTION_COORDINATOR_FENCED]])
        else:
            del self.asked[request]
            self.step(CallFailed(request, "lost"))

    @invariant()
    def holds(self) -> None:
        self.queue.check()

    def teardown(self) -> None:
        """Calm: every partition has a leader, and brokers write what they are sent."""
        self.lead([1, 2, 1, 2])
        for _ in range(CALM_TICKS_MAX):
            for request in sorted(self.asked):
                parts = self.asked[request].parts
                self.answer(request, [[ErrorCode.NONE] * len(part.partitions) for part in parts])
            due = self.queue.next_deadline(InstantMs(self.now))
            if due is None:
                break
            self.now = due
            self.step(Tick())
        assert (self.wanted, self.asked, self.queue.ending_count) == ({}, {}, 0)
        self.queue.check()


def effect_of(name: str, partitions: tuple[TopicPartition, ...]) -> SendMarkers:
    return SendMarkers(name, 7, 5, 1, True, partitions, 2)


Histories.TestCase.settings = settings(deadline=None, stateful_step_count=40)
TestMarkerHistories = Histories.TestCase
