"""Random histories of one shard: zombies, lost and repeated answers, markers that are reported
late, twice or in part, appends that fail or of which nobody learns, owners that crash.

The model knows only what clients were answered and which markers were asked for. It holds:

* a decision is made once: whoever asks for its markers again asks for the same ones;
* markers go to exactly the partitions that were added, and to those whose answer was lost at most;
* an epoch that a newer session fenced never succeeds again;
* a commit that was answered is what the markers say, and ends once all of them are written.
"""

import random
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TypeVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)
from tidemark.codec.txn_records import (
    HandleRecord,
    TransactionRecord,
    TransactionState,
    TxnRecord,
    WriterRecord,
)
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition
from txn_coordinator.core import transaction
from txn_coordinator.core.effects import SendMarkers
from txn_coordinator.core.requests import (
    AddPartitions,
    AddPartitionsReply,
    BeginTransaction,
    BeginTransactionReply,
    CountedWriter,
    EndTransaction,
    EndTransactionReply,
    EnlistWriter,
    EnlistWriterReply,
    FinishTransaction,
    FinishTransactionReply,
    InitTransactionalId,
    InitTransactionalIdReply,
    MarkersWritten,
    Reply,
    Request,
)
from txn_coordinator.core.settings import TxnSettings
from txn_coordinator.core.shard import TxnDecision
from unit.txn_coordinator.worlds import P0, P1, Q0, TIMEOUT_MS, World

T = TypeVar("T")
SINGLE, BOTH, MULTI_WRITER = "single", "both", "multi_writer"
"""Used by Kafka's API, by both, and with handles. The producers of the second have used up nearly
all of their epochs.
"""
SOME = st.frozensets(st.sampled_from([P0, P1, Q0]), min_size=1)
FATES = st.sampled_from(["done"] * 9 + ["failed", "unheard", "torn"])
SELDOM = st.sampled_from([False] * 5 + [True])
AGES = st.sampled_from([0, 0, 0, 0, 0, 1, 2, 5])
"""Age of a session of a client: mostly the newest, else a zombie."""
LATE_EPOCH = transaction.EPOCH_MAX - 3
Key = tuple[str, int, int]
"""Transactional id, time of the decision, producer id."""


@dataclass(frozen=True)
class Session:
    """Producer id and epoch of a client; ``chain`` counts the InitProducerId that began it."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    chain: int
    v2: bool


@dataclass(frozen=True)
class HandOut:
    """Producer id and epoch that a writer got."""

    handle: str
    counted: CountedWriter

    @property
    def transactional_id(self) -> str:
        return self.handle.split(".", 3)[3]

    @property
    def producer_id(self) -> int:
        return self.counted.producer_id

    @property
    def producer_epoch(self) -> int:
        return self.counted.producer_epoch


@dataclass
class Model:
    """State that clients can observe, to check the shard against."""

    acknowledged: dict[int, set[TopicPartition]] = field(default_factory=lambda: defaultdict(set))
    """Partitions of the current transaction, by producer id."""
    uncertain: dict[int, set[TopicPartition]] = field(default_factory=lambda: defaultdict(set))
    decisions: dict[Key, SendMarkers] = field(default_factory=dict)
    written: dict[Key, set[TopicPartition]] = field(default_factory=lambda: defaultdict(set))
    outcome: dict[int, bool] = field(default_factory=dict)
    """True if the last markers of a producer committed."""
    single: set[int] = field(default_factory=set)
    """Producers of Kafka's API."""
    chains: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    finished: dict[str, tuple[bool, frozenset[CountedWriter]]] = field(default_factory=dict)

    def on_markers(self, markers: SendMarkers) -> None:
        key = key_of(markers)
        known = self.decisions.setdefault(key, markers)
        assert known == markers, "a decision was made twice"
        if known is not markers:
            return
        partitions, producer_id = set(markers.partitions), markers.producer_id
        assert self.acknowledged[producer_id] <= partitions, markers
        assert partitions <= self.acknowledged[producer_id] | self.uncertain[producer_id], markers
        self.acknowledged[producer_id] = set()
        self.uncertain[producer_id] = set()
        self.outcome[producer_id] = markers.commit

    def on_completed(self, record: TransactionRecord | HandleRecord, prepared_at: int) -> None:
        """A transaction of Kafka's API and one with a handle may be decided in the same ms."""
        is_single = isinstance(record, TransactionRecord)
        for key, markers in self.decisions.items():
            if key[:2] != (record.transactional_id, prepared_at):
                continue
            if is_single == (markers.producer_id in self.single):
                assert self.written[key] == set(markers.partitions), "an end without its markers"


def key_of(markers: SendMarkers) -> Key:
    return markers.transactional_id, markers.prepared_at, markers.producer_id


class Histories(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.world = World(TxnSettings(writers_max=4, writer_partitions_max=6))
        self.world.log = worn_out()
        self.world.crash()
        self.model = Model()
        self.sessions: list[Session] = []
        self.handles: list[str] = []
        self.hand_outs: list[HandOut] = []
        self.prepared_at: dict[tuple[str, type], int] = {}
        self.request_ids = count(1)
        self.parked: dict[int, tuple[Session | HandOut, frozenset[TopicPartition]]] = {}
        """Additions that wait for markers, by request id."""

    def follow(self, records: list[TxnRecord]) -> None:
        """Watch ends in the log."""
        for record in records:
            if not isinstance(record, TransactionRecord | HandleRecord):
                continue
            kind = (record.transactional_id, type(record))
            if isinstance(record, TransactionRecord):
                self.model.single.add(record.producer_id)
            if record.state in transaction.PREPARED:
                self.prepared_at[kind] = record.updated_at
            elif record.state.name.startswith("COMPLETE"):
                self.model.on_completed(record, self.prepared_at[kind])

    def ask(self, request: Request, fate: str) -> Reply | None:
        """The answer; None if it is lost, or comes later."""
        request_id = next(self.request_ids)
        decision = self.world.shard.decide(request_id, request, self.world.now)
        if fate != "done":
            self.lose(decision, fate)
            return None
        answers = {one.to: one.reply for one in self.world.perform(decision)}
        self.follow(list(decision.records))
        for effect in decision.effects:
            if isinstance(effect, SendMarkers):
                self.model.on_markers(effect)
        reply = answers.pop(request_id, None)
        self.answered_late(answers)
        return reply

    def answered_late(self, answers: dict[int, Reply]) -> None:
        """Take the answers to additions that have waited."""
        for request_id, reply in answers.items():
            who, partitions = self.parked.pop(request_id)
            assert isinstance(reply, AddPartitionsReply)
            if reply.error_code == ErrorCode.NONE:
                self.model.acknowledged[who.producer_id] |= partitions
                if isinstance(who, Session):
                    self.must_be_present(who)

    def lose(self, decision: TxnDecision, fate: str) -> None:
        """The append failed, was torn, or its outcome was lost; another owner loads the log."""
        kept = {"failed": 0, "torn": 1, "unheard": len(decision.records)}[fate]
        appended = list(decision.records[:kept])
        self.world.log += appended
        self.follow(appended)
        for who, partitions in self.parked.values():
            self.model.uncertain[who.producer_id] |= partitions
        self.reload()

    def reload(self) -> None:
        self.parked.clear()
        before = len(self.world.log)
        self.world.crash()
        self.follow(self.world.log[before:])
        for markers in self.world.markers:
            self.model.on_markers(markers)

    @rule(transactional_id=st.sampled_from([SINGLE, BOTH]), v2=st.booleans(), fate=FATES)
    def init_new(self, transactional_id: str, v2: bool, fate: str) -> None:
        request = InitTransactionalId(transactional_id, TIMEOUT_MS, next(self.world.spares))
        reply = self.ask(request, fate)
        if not isinstance(reply, InitTransactionalIdReply) or reply.error_code != ErrorCode.NONE:
            return
        self.model.chains[transactional_id] += 1
        chain = self.model.chains[transactional_id]
        given = (reply.producer_id, reply.producer_epoch)
        self.sessions.append(Session(transactional_id, *given, chain, v2))

    @precondition(lambda self: self.sessions)
    @rule(age=AGES, fate=FATES)
    def init_again(self, age: int, fate: str) -> None:
        session = aged(self.sessions, age)
        request = InitTransactionalId(
            session.transactional_id,
            TIMEOUT_MS,
            next(self.world.spares),
            session.producer_id,
            session.producer_epoch,
        )
        reply = self.ask(request, fate)
        if isinstance(reply, InitTransactionalIdReply) and reply.error_code == ErrorCode.NONE:
            self.must_be_present(session)
            self.go_on(session, reply.producer_id, reply.producer_epoch)

    @precondition(lambda self: self.sessions)
    @rule(age=AGES, partitions=SOME, fate=FATES)
    def add(self, age: int, partitions: frozenset[TopicPartition], fate: str) -> None:
        session = aged(self.sessions, age)
        if self.add_partitions(session, partitions, fate, v2=session.v2):
            self.must_be_present(session)

    @precondition(lambda self: self.hand_outs)
    @rule(age=AGES, partitions=SOME, fate=FATES)
    def add_of_writer(self, age: int, partitions: frozenset[TopicPartition], fate: str) -> None:
        hand_out = aged(self.hand_outs, age)
        if self.add_partitions(hand_out, partitions, fate, v2=True):
            assert hand_out.handle not in self.model.finished, "added to what was decided"
            held = [one for one in self.hand_outs if same_name(one, hand_out)]
            assert held[-1] == hand_out, "a hand-out that was fenced succeeded"

    def add_partitions(
        self, who: Session | HandOut, partitions: frozenset[TopicPartition], fate: str, *, v2: bool
    ) -> bool:
        producer_id, producer_epoch = who.producer_id, who.producer_epoch
        request = AddPartitions(
            who.transactional_id,
            producer_id,
            producer_epoch,
            tuple(sorted(partitions)),
            transactions_v2=v2,
        )
        if fate != "done":
            # Before the request: the markers of the reload may have them.
            self.model.uncertain[producer_id] |= partitions
        before = next(self.request_ids)
        reply = self.ask(request, fate)
        if reply is None and fate == "done":
            self.parked[before + 1] = (who, partitions)
        if not isinstance(reply, AddPartitionsReply) or reply.error_code != ErrorCode.NONE:
            return False
        self.model.acknowledged[producer_id] |= partitions
        return True

    @precondition(lambda self: self.sessions)
    @rule(age=AGES, commit=st.booleans(), fate=FATES)
    def end(self, age: int, commit: bool, fate: str) -> None:
        session = aged(self.sessions, age)
        had_written = bool(self.model.acknowledged[session.producer_id])
        request = EndTransaction(
            session.transactional_id,
            session.producer_id,
            session.producer_epoch,
            commit,
            session.v2,
            next(self.world.spares),
        )
        reply = self.ask(request, fate)
        if not isinstance(reply, EndTransactionReply) or reply.error_code != ErrorCode.NONE:
            return
        self.must_be_present(session)
        assert not self.model.acknowledged[session.producer_id], "ended without its markers"
        if had_written or commit:
            assert self.model.outcome.get(session.producer_id, commit) == commit
        if session.v2:
            self.go_on(session, reply.producer_id, reply.producer_epoch)

    @rule(transactional_id=st.sampled_from([MULTI_WRITER, BOTH]), abort_previous=SELDOM, fate=FATES)
    def begin(self, transactional_id: str, abort_previous: bool, fate: str) -> None:
        request = BeginTransaction(transactional_id, TIMEOUT_MS, abort_previous)
        reply = self.ask(request, fate)
        if isinstance(reply, BeginTransactionReply) and reply.error_code == ErrorCode.NONE:
            self.handles.append(reply.handle)

    @precondition(lambda self: self.handles)
    @rule(age=AGES, name=st.sampled_from("ab"), fate=FATES)
    def enlist(self, age: int, name: str, fate: str) -> None:
        handle = aged(self.handles, age)
        reply = self.ask(EnlistWriter(handle, name, next(self.world.spares)), fate)
        if isinstance(reply, EnlistWriterReply) and reply.error_code == ErrorCode.NONE:
            assert handle not in self.model.finished, "enlisted in what was decided"
            counted = CountedWriter(name, reply.producer_id, reply.producer_epoch)
            self.hand_outs.append(HandOut(handle, counted))

    @precondition(lambda self: self.handles)
    @rule(age=AGES, ages=st.sets(AGES, max_size=2), commit=st.booleans(), fate=FATES)
    def finish(self, age: int, ages: set[int], commit: bool, fate: str) -> None:
        handle = aged(self.handles, age)
        own = [one for one in self.hand_outs if one.handle == handle]
        named = {aged(own, age) for age in ages} if own and commit else set()
        winners = frozenset(one.counted for one in named)
        known = set(self.model.decisions)
        reply = self.ask(FinishTransaction(handle, commit, tuple(winners)), fate)
        if not isinstance(reply, FinishTransactionReply) or reply.error_code != ErrorCode.NONE:
            return
        assert reply.committed == commit
        told = self.model.finished.setdefault(handle, (commit, winners))
        assert told == (commit, winners), "a transaction ended twice"
        counted = {winner.producer_id for winner in winners}
        for key in set(self.model.decisions) - known:
            assert self.model.decisions[key].commit == (key[2] in counted)
        for one in named:
            assert aged_name(own, one) == one, "a hand-out that was fenced was committed"

    @precondition(lambda self: self.sessions)
    @rule(age=AGES, wanted=st.lists(SOME, max_size=2), commit=st.booleans(), fate=FATES)
    def transact(
        self, age: int, wanted: list[frozenset[TopicPartition]], commit: bool, fate: str
    ) -> None:
        """Run the usual transaction of a well-behaved client."""
        for partitions in wanted:
            self.add(age, partitions, "done")
        self.end(age, commit, fate)
        self.markers_of_last(fate)

    @precondition(lambda self: self.handles)
    @rule(wanted=st.lists(SOME, max_size=3), ages=st.sets(AGES, max_size=2), fate=FATES)
    def transact_multi_writer(
        self, wanted: list[frozenset[TopicPartition]], ages: set[int], fate: str
    ) -> None:
        for number, partitions in enumerate(wanted):
            self.enlist(0, "aba"[number], "done")
            if self.hand_outs:
                self.add_of_writer(0, partitions, "done")
        self.finish(0, ages, True, fate)
        self.markers_of_last(fate)

    def markers_of_last(self, fate: str) -> None:
        for markers in list(self.model.decisions.values())[-2:]:
            self.report(markers, frozenset(markers.partitions), fate)

    @precondition(lambda self: self.model.decisions)
    @rule(age=AGES, part=st.integers(0, 2), fate=FATES)
    def marker_is_written(self, age: int, part: int, fate: str) -> None:
        """Write one of the markers that were ever requested, perhaps again."""
        markers = aged(list(self.model.decisions.values()), age)
        partition = markers.partitions[part % len(markers.partitions)]
        self.report(markers, frozenset({partition}), fate)

    @rule()
    def all_markers_are_written(self) -> None:
        for markers in list(self.model.decisions.values()):
            self.report(markers, frozenset(markers.partitions), "done")

    def report(
        self, markers: SendMarkers, partitions: frozenset[TopicPartition], fate: str
    ) -> None:
        self.model.written[key_of(markers)] |= partitions
        request = MarkersWritten(
            markers.transactional_id,
            markers.producer_id,
            markers.producer_epoch,
            markers.prepared_at,
            tuple(sorted(partitions)),
        )
        self.ask(request, fate)

    @rule(ms=st.sampled_from([1, 1_000, TIMEOUT_MS // 2, TIMEOUT_MS]))
    def time_passes(self, ms: int) -> None:
        before, self.world.markers = len(self.world.log), []
        answers = self.world.woken(ms)
        self.follow(self.world.log[before:])
        self.answered_late({one.to: one.reply for one in answers})
        for markers in self.world.markers:
            self.model.on_markers(markers)

    @rule()
    def the_owner_crashes(self) -> None:
        self.reload()

    @invariant()
    def the_shard_is_sound(self) -> None:
        if hasattr(self, "world"):
            self.world.shard.check()

    def teardown(self) -> None:
        """Once all markers are written, nothing is left prepared."""
        if not hasattr(self, "world"):
            return
        self.time_passes(2 * TIMEOUT_MS)
        self.all_markers_are_written()
        states = {
            self.world.view(transactional_id).state
            for transactional_id in (SINGLE, BOTH, MULTI_WRITER)
        }
        assert states <= {"", "Empty", "CompleteCommit", "CompleteAbort"}

    def must_be_present(self, session: Session) -> None:
        assert session.chain == self.model.chains[session.transactional_id], "a zombie succeeded"

    def go_on(self, session: Session, producer_id: int, producer_epoch: int) -> None:
        following = replace(session, producer_id=producer_id, producer_epoch=producer_epoch)
        if following not in self.sessions:
            self.sessions.append(following)


def aged(given: list[T], age: int) -> T:
    """The newest for 0."""
    return given[-1 - min(age, len(given) - 1)]


def same_name(one: HandOut, other: HandOut) -> bool:
    return (one.handle, one.counted.writer) == (other.handle, other.counted.writer)


def aged_name(own: list[HandOut], one: HandOut) -> HandOut:
    """The last hand-out of the same name."""
    return next(other for other in reversed(own) if same_name(one, other))


def worn_out() -> list[TxnRecord]:
    """Records that are left of an id that was used very often."""
    ended = TransactionState.COMPLETE_ABORT
    return [
        TransactionRecord(BOTH, 1, LATE_EPOCH, TIMEOUT_MS, ended, 10, 5),
        HandleRecord(BOTH, 9, 3, TIMEOUT_MS, ended, 10, 5),
        WriterRecord(BOTH, 0, 9, "a", 2, LATE_EPOCH - 2),
    ]


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=20, stateful_step_count=40, deadline=None)


class Walker:
    """A long history in which much succeeds: hypothesis' own are short and full of zombies."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.history = Histories()
        self.history.start()

    def walk(self, steps: int) -> None:
        acts: list[tuple[int, Callable[[], None]]] = [
            (1, self.init),
            (8, self.add),
            (5, self.end),
            (6, self.add_of_writer),
            (2, self.begin),
            (5, self.enlist),
            (2, self.finish),
            (6, self.marker_is_written),
            (1, self.time_passes),
            (4, self.history.all_markers_are_written),
        ]
        weights, doers = zip(*acts, strict=True)
        for act in self.dice.choices(doers, weights, k=steps):
            act()
            self.history.the_shard_is_sound()
        self.history.teardown()

    def init(self) -> None:
        dice, history = self.dice, self.history
        if history.sessions and dice.random() < 0.3:
            history.init_again(self.age(), self.fate())
        else:
            history.init_new(dice.choice([SINGLE, BOTH]), dice.random() < 0.6, self.fate())

    def add(self) -> None:
        if self.history.sessions:
            self.history.add(self.age(), self.some(), self.fate())

    def end(self) -> None:
        if self.history.sessions:
            self.history.end(self.age(), self.dice.random() < 0.7, self.fate())

    def add_of_writer(self) -> None:
        if self.history.hand_outs:
            self.history.add_of_writer(self.age(), self.some(), self.fate())

    def begin(self) -> None:
        transactional_id = self.dice.choice([MULTI_WRITER, MULTI_WRITER, BOTH])
        self.history.begin(transactional_id, self.dice.random() < 0.1, self.fate())

    def enlist(self) -> None:
        if self.history.handles:
            self.history.enlist(self.age(), self.dice.choice("ab"), self.fate())

    def finish(self) -> None:
        if self.history.handles:
            commit = self.dice.random() < 0.8
            self.history.finish(self.age(), {self.age(), self.age()}, commit, self.fate())

    def marker_is_written(self) -> None:
        if self.history.model.decisions:
            self.history.marker_is_written(self.age(), self.dice.randrange(3), self.fate())

    def time_passes(self) -> None:
        self.history.time_passes(self.dice.choice([1, 1, 100, TIMEOUT_MS // 3]))

    def some(self) -> frozenset[TopicPartition]:
        return frozenset(self.dice.sample([P0, P1, Q0], self.dice.randint(1, 3)))

    def age(self) -> int:
        return self.dice.choice([0] * 15 + [1, 2, 5])

    def fate(self) -> str:
        return self.dice.choice(["done"] * 30 + ["failed", "unheard", "torn"])


@pytest.mark.feature("L02", "L03", "L04", "L08", "Y04")
@pytest.mark.parametrize("seed", range(24))
def test_a_long_history(seed: int) -> None:
    walker = Walker(seed)
    walker.walk(400)
    assert len(walker.history.model.decisions) > 10
