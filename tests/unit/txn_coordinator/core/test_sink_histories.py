"""Random histories of one sink: drivers and tasks of several queries that repeat what they asked,
come late or never hear the answer; appends that fail or are torn, owners that crash, timeouts.

The truth is what the log says. It holds:

* a batch is committed once, and whoever asks hears the note of that commit;
* a writer is never given for a batch that is done or older, nor to a retired query;
* markers commit what the winners of that one commit wrote, and nothing else;
* whatever was replayed, the log read anew gives the same state.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
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
from tidemark.codec.sink_state import NO_BATCH, SinkState
from tidemark.codec.txn_records import HandleRecord, HandleTombstone, TxnRecord, WriterRecord
from tidemark.model.errors import ErrorCode
from txn_coordinator.core import transaction
from txn_coordinator.core.effects import SendMarkers
from txn_coordinator.core.requests import (
    AddPartitions,
    AddPartitionsReply,
    BatchRefusal,
    BeginTransaction,
    CountedWriter,
    DescribeTransactions,
    DescribeTransactionsReply,
    EnlistInBatch,
    EnlistInBatchReply,
    FinishBatch,
    FinishBatchReply,
    ForgetSink,
    InitTransactionalId,
    KeepBatchAlive,
    MarkersWritten,
    Reply,
    Request,
)
from txn_coordinator.core.settings import TxnSettings
from txn_coordinator.core.shard import TxnDecision, TxnShard
from unit.txn_coordinator.worlds import ID, P0, P1, TIMEOUT_MS, World, compacted

T = TypeVar("T")
QUERIES = st.sampled_from(["x", "x", "x", "y", "z"])
BATCHES = st.sampled_from([0, 0, 1, 1, 2, 3])
FATES = st.sampled_from(["done"] * 9 + ["failed", "unheard", "torn"])
AGES = st.sampled_from([0, 0, 0, 0, 1, 2, 5])
Batch = tuple[str, int]
"""Query and batch id."""


@dataclass(frozen=True)
class HandOut:
    """Producer id and epoch that a task got."""

    batch: Batch
    handle: str
    counted: CountedWriter


@dataclass
class Truth:
    """Content of the log since the sink was last removed."""

    sink: SinkState | None = None
    committed: dict[Batch, str] = field(default_factory=dict)
    """Batches that are done, with the note of their commit."""
    winners: dict[Batch, set[int]] = field(default_factory=dict)
    """Their producer ids."""

    def newest(self, query_id: str) -> int:
        return max((batch for query, batch in self.committed if query == query_id), default=-1)


class SinkHistories(RuleBasedStateMachine):
    @initialize()
    def start(self) -> None:
        self.world = World(TxnSettings(writers_max=6))
        self.truth = Truth()
        self.followed = 0
        self.hand_outs: list[HandOut] = []
        self.slots: dict[int, WriterRecord] = {}
        self.winners: dict[tuple[int, int], bool] = {}
        """True for a commit, by the time of the decision and the producer id."""
        self.decisions: list[SendMarkers] = []
        self.notes = 0

    # -- the log and the shard

    def follow(self) -> None:
        """Learn from what was appended."""
        for record in self.world.log[self.followed :]:
            self.learn(record)
        self.followed = len(self.world.log)

    def learn(self, record: TxnRecord) -> None:
        if isinstance(record, HandleTombstone):
            self.truth = Truth()
        elif isinstance(record, WriterRecord):
            self.slots[record.slot] = record
        elif isinstance(record, HandleRecord):
            assert record.sink is not None
            if record.state in transaction.PREPARED:
                self.learn_decision(record, record.sink)
            self.truth.sink = record.sink

    def learn_decision(self, record: HandleRecord, sink: SinkState) -> None:
        for slot in self.slots.values():
            if slot.number == record.number:
                winning = slot.slot in record.winners
                self.winners[record.updated_at, slot.producer_id] = winning
        if record.state is transaction.PREPARE_COMMIT:
            batch = (sink.query_id, sink.committed_batch_id)
            assert batch not in self.truth.committed, "a batch was committed twice"
            assert batch[1] > self.truth.newest(batch[0]), "an older batch was committed"
            self.truth.committed[batch] = sink.note
            self.truth.winners[batch] = {self.slots[slot].producer_id for slot in record.winners}

    def watch(self, markers: SendMarkers) -> None:
        expected = self.winners[markers.prepared_at, markers.producer_id]
        assert markers.commit == expected, markers
        self.decisions.append(markers)

    def ask(self, request: Request, fate: str = "done") -> Reply | None:
        """The answer; None if it is lost."""
        decision = self.world.shard.decide(1, request, self.world.now)
        if fate != "done":
            self.lose(decision, fate)
            return None
        answers = self.world.perform(decision)
        self.follow()
        self.watch_all()
        return answers[0].reply if answers else None

    def watch_all(self) -> None:
        markers, self.world.markers = self.world.markers, []
        for one in markers:
            self.watch(one)

    def lose(self, decision: TxnDecision, fate: str) -> None:
        """The append failed, was torn, or its outcome was lost; another owner loads the log."""
        kept = {"failed": 0, "torn": 1, "unheard": len(decision.records)}[fate]
        self.world.log += decision.records[:kept]
        self.the_owner_crashes()

    # What tasks and drivers do.

    @rule(query=QUERIES, batch=BATCHES, writer=st.sampled_from("abc"), fate=FATES)
    def enlist(self, query: str, batch: int, writer: str, fate: str) -> None:
        retired = self.truth.sink.retired if self.truth.sink is not None else ()
        newest, note = self.truth.newest(query), self.truth.committed.get((query, batch))
        request = EnlistInBatch(ID, query, batch, writer, TIMEOUT_MS, next(self.world.spares))
        reply = self.ask(request, fate)
        if not isinstance(reply, EnlistInBatchReply):
            return
        if reply.committed:
            assert reply.note == note
        elif reply.error_code is ErrorCode.NONE:
            assert query not in retired, "a retired query got a writer"
            assert batch > newest, "a batch that is done or older got a writer"
            counted = CountedWriter(writer, reply.producer_id, reply.producer_epoch)
            self.hand_outs.append(HandOut((query, batch), reply.handle, counted))

    @precondition(lambda self: self.hand_outs)
    @rule(age=AGES, both=st.booleans(), fate=FATES)
    def write(self, age: int, both: bool, fate: str) -> None:
        one = aged(self.hand_outs, age)
        partitions = (P0, P1) if both else (P0,)
        identity = (one.counted.producer_id, one.counted.producer_epoch)
        request = AddPartitions(ID, *identity, partitions, transactions_v2=True)
        reply = self.ask(request, fate)
        if isinstance(reply, AddPartitionsReply) and reply.error_code is ErrorCode.NONE:
            assert one.batch not in self.truth.committed, "written to a batch that is done"

    @precondition(lambda self: self.hand_outs)
    @rule(age=AGES)
    def keep_alive(self, age: int) -> None:
        self.ask(KeepBatchAlive(aged(self.hand_outs, age).handle))

    @rule(query=QUERIES, batch=BATCHES, fate=FATES)
    def commit_what_was_written(self, query: str, batch: int, fate: str) -> None:
        """Finish a batch as a driver that counts the last attempt of each task."""
        own = [one.counted for one in self.hand_outs if one.batch == (query, batch)]
        last = {counted.writer: counted for counted in own}
        self.commit((query, batch), tuple(last.values()), fate)

    @precondition(lambda self: self.hand_outs)
    @rule(age=AGES, with_writer=st.booleans(), fate=FATES)
    def commit_in_part(self, age: int, with_writer: bool, fate: str) -> None:
        one = aged(self.hand_outs, age)
        self.commit(one.batch, (one.counted,) if with_writer else (), fate)

    def commit(self, batch: Batch, writers: tuple[CountedWriter, ...], fate: str) -> None:
        before = self.truth.committed.get(batch)
        self.notes += 1
        note = f"commit {self.notes}"
        reply = self.ask(FinishBatch(ID, *batch, True, writers, note), fate)
        if not isinstance(reply, FinishBatchReply):
            return
        if reply.error_code is not ErrorCode.NONE:
            is_refused = reply.refusal is not BatchRefusal.NONE
            assert before is None or is_refused, reply
            return
        assert reply.committed
        assert reply.first == (before is None)
        assert reply.note == (note if before is None else before)
        assert self.truth.committed[batch] == reply.note
        if reply.first:
            assert self.truth.winners[batch] == {writer.producer_id for writer in writers}

    @rule(query=QUERIES, batch=BATCHES, fate=FATES)
    def abort(self, query: str, batch: int, fate: str) -> None:
        reply = self.ask(FinishBatch(ID, query, batch, False), fate)
        if isinstance(reply, FinishBatchReply) and reply.error_code is ErrorCode.NONE:
            assert reply.committed == ((query, batch) in self.truth.committed)

    # What happens to them.

    @precondition(lambda self: self.decisions)
    @rule(age=AGES, fate=FATES)
    def a_marker_is_written(self, age: int, fate: str) -> None:
        """Write one of the markers that were ever requested, perhaps again."""
        self.report(aged(self.decisions, age), fate)

    @rule()
    def all_markers_are_written(self) -> None:
        for markers in list(self.decisions):
            self.report(markers, "done")

    def report(self, markers: SendMarkers, fate: str) -> None:
        identity = (markers.producer_id, markers.producer_epoch, markers.prepared_at)
        self.ask(MarkersWritten(ID, *identity, markers.partitions), fate)

    @rule(ms=st.sampled_from([1, 1_000, TIMEOUT_MS // 2, TIMEOUT_MS]))
    def time_passes(self, ms: int) -> None:
        self.world.advance(ms)
        self.follow()
        self.watch_all()

    @rule()
    def the_owner_crashes(self) -> None:
        self.follow()
        self.world.crash()
        self.follow()
        self.watch_all()

    @rule(abort_open=st.booleans(), fate=FATES, dice=st.integers(0, 5))
    def forget(self, abort_open: bool, fate: str, dice: int) -> None:
        if dice == 0:
            self.ask(ForgetSink(ID, abort_open), fate)

    @rule(fate=FATES, dice=st.integers(0, 5))
    def an_operator_aborts(self, fate: str, dice: int) -> None:
        """``tidemark txn abort``."""
        if dice == 0:
            self.ask(InitTransactionalId(ID, TIMEOUT_MS, next(self.world.spares)), fate)

    @precondition(lambda self: self.truth.sink is not None)
    @rule()
    def somebody_mistakes_it_for_a_plain_id(self) -> None:
        before = len(self.world.log)
        self.ask(BeginTransaction(ID, TIMEOUT_MS, abort_previous=True))
        assert len(self.world.log) == before

    @invariant()
    def the_shard_is_sound(self) -> None:
        if hasattr(self, "world"):
            self.world.shard.check()

    @invariant()
    def the_log_read_anew_gives_the_same_state(self) -> None:
        if hasattr(self, "world"):
            anew = TxnShard(self.world.settings)
            for record in compacted(self.world.log):
                anew.replay(record, None)
            anew.loaded(self.world.now)
            assert described(anew, self.world) == described(self.world.shard, self.world)

    @invariant()
    def the_sink_tells_the_truth(self) -> None:
        if not hasattr(self, "world") or self.truth.sink is None:
            return
        sink = self.world.view(ID).sink
        assert sink is not None
        assert sink.query_id not in sink.retired_query_ids
        newest = self.truth.newest(sink.query_id)
        assert sink.committed_batch_id == newest
        if newest != NO_BATCH:
            assert sink.note == self.truth.committed[sink.query_id, newest]

    def teardown(self) -> None:
        """Once all markers are written, nothing is left prepared."""
        if hasattr(self, "world"):
            self.time_passes(2 * TIMEOUT_MS)
            self.all_markers_are_written()
            assert self.world.state() in ("", "Empty", "CompleteCommit", "CompleteAbort")


def described(shard: TxnShard, world: World) -> object:
    decision = shard.decide(1, DescribeTransactions((ID,)), world.now)
    (answer,) = decision.effects
    assert not isinstance(answer, SendMarkers)
    assert isinstance(answer.reply, DescribeTransactionsReply)
    return answer.reply


def aged(given: list[T], age: int) -> T:
    """The newest for 0."""
    return given[-1 - min(age, len(given) - 1)]


TestSinkHistories = SinkHistories.TestCase
TestSinkHistories.settings = settings(max_examples=25, stateful_step_count=40, deadline=None)


class Walker:
    """A long history of queries that go on: hypothesis' own are short and full of zombies."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.history = SinkHistories()
        self.history.start()
        self.batch: Batch = ("q0", 0)
        self.queries = 1

    def walk(self, steps: int) -> None:
        acts: list[tuple[int, Callable[[], None]]] = [
            (10, self.enlist),
            (10, self.write),
            (6, self.commit),
            (1, self.abort),
            (8, self.history.all_markers_are_written),
            (1, self.crash_or_wait),
        ]
        weights, doers = zip(*acts, strict=True)
        for act in self.dice.choices(doers, weights, k=steps):
            act()
            self.history.the_shard_is_sound()
            self.history.the_sink_tells_the_truth()
        self.history.teardown()

    def enlist(self) -> None:
        self.history.enlist(*self.some_batch(), self.dice.choice("abc"), self.fate())

    def write(self) -> None:
        if self.history.hand_outs:
            age = self.dice.choice([0] * 8 + [1, 4])
            self.history.write(age, self.dice.random() < 0.5, self.fate())

    def commit(self) -> None:
        self.history.commit_what_was_written(*self.some_batch(), self.fate())
        query_id, batch_id = self.batch
        if self.batch not in self.history.truth.committed:
            return
        self.batch = (query_id, batch_id + 1)
        if self.dice.random() < 0.05:
            self.batch = (f"q{self.queries}", 0)
            self.queries += 1

    def abort(self) -> None:
        self.history.abort(*self.some_batch(), self.fate())

    def crash_or_wait(self) -> None:
        if self.dice.random() < 0.5:
            self.history.the_owner_crashes()
        else:
            self.history.time_passes(self.dice.choice([1, 100, TIMEOUT_MS]))

    def some_batch(self) -> Batch:
        """The present one mostly; else an older one, or a former query's."""
        query_id, batch_id = self.batch
        chance = self.dice.random()
        if chance < 0.9:
            return self.batch
        if chance < 0.96 or self.queries == 1:
            return query_id, max(0, batch_id - self.dice.choice([1, 2]))
        return f"q{self.dice.randrange(self.queries - 1)}", self.dice.randrange(4)

    def fate(self) -> str:
        return self.dice.choice(["done"] * 30 + ["failed", "unheard", "torn"])


@pytest.mark.feature("Y02", "Y04")
@pytest.mark.parametrize("seed", range(12))
def test_a_long_history(seed: int) -> None:
    walker = Walker(seed)
    walker.walk(300)
    assert len(walker.history.truth.committed) > 10
