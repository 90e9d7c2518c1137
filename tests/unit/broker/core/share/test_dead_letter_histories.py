"""Random histories of dead letters: steps that fail before or after their effect, leaders that
change, ends that are reported late. Each letter is in the queue exactly once.
"""

import random
from collections import Counter
from itertools import groupby

import pytest
from broker.core.share.dead_letters import Attempt, DeadLetters, Problem, Step
from broker.core.share.settings import ShareSettings
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import Offset, ProducerEpoch, ProducerId
from tidemark.model.share_state import PendingBatch, TransactionKey
from unit.broker.core.share.share_worlds import ARCHIVED, ARCHIVING, ShareWorld, state_batch

LETTERS = 12
STEPS = 120
SETTINGS = ShareSettings(has_dead_letters=True)
LOST = Problem(ErrorCode.REQUEST_TIMED_OUT, "no answer")
FENCED = Problem(ErrorCode.PRODUCER_FENCED, "another producer")
BUSY = Problem(ErrorCode.CONCURRENT_TRANSACTIONS, "the transaction before has not ended")
OVERTAKEN = Problem(ErrorCode.FENCED_LEADER_EPOCH, "another leader")


class Cluster:
    """Queue, transactions and the state of the share-partition."""

    def __init__(self) -> None:
        self.archived: set[int] = set()
        self.pending: dict[int, TransactionKey] = {}
        self.copies: list[tuple[TransactionKey, int]] = []
        self.fates: dict[TransactionKey, bool] = {}
        self.unapplied: TransactionKey | None = None
        """Transaction whose end the state does not have yet."""
        self.epoch = -1

    def committed(self) -> Counter[int]:
        return Counter(offset for transaction, offset in self.copies if self.fates.get(transaction))

    def decide(self, *, commits: bool) -> None:
        transaction = TransactionKey(ProducerId(7), ProducerEpoch(self.epoch))
        self.fates[transaction] = commits
        self.unapplied = transaction
        self.epoch += 1

    def apply(self) -> TransactionKey | None:
        """Let the state have the end of the last transaction."""
        transaction, self.unapplied = self.unapplied, None
        held = {offset for offset, one in self.pending.items() if one == transaction}
        if transaction is not None and self.fates[transaction]:
            self.archived |= held
        for offset in held:
            del self.pending[offset]
        return transaction if held else None


class Leader:
    """A leader that has read the state."""

    def __init__(self, cluster: Cluster) -> None:
        runs = groupby(range(LETTERS), lambda at: (at in cluster.archived, cluster.pending.get(at)))
        batches, held = [], []
        for (is_archived, transaction), run in runs:
            first, *rest = run
            last = rest[-1] if rest else first
            if transaction is None:
                state = ARCHIVED if is_archived else ARCHIVING
                batches.append(state_batch(first, last, state, 1))
            else:
                held.append(
                    PendingBatch(Offset(first), Offset(last), ARCHIVED, 1, transaction, ARCHIVING)
                )
        self.world = ShareWorld(SETTINGS).load(*batches, pending=held)
        self.letters = DeadLetters(self.world.share, lambda: 0.5)
        self.letters.loaded(held)
        self.attempt: Attempt | None = None


class History:
    """One run."""

    def __init__(self, seed: int) -> None:
        self.dice = random.Random(seed)
        self.cluster = Cluster()
        self.leader = Leader(self.cluster)
        self.earlier: list[Leader] = []
        self.reports: list[TransactionKey] = []
        self.is_healed = False

    def run(self) -> None:
        for _ in range(STEPS):
            self.dice.choice(
                (self.step, self.step, self.step, self.old_step, self.change, self.end)
            )()
            assert max(self.cluster.committed().values(), default=0) <= 1
        self.is_healed = True
        while len(self.cluster.archived) < LETTERS:
            self.step()
            self.end()
        self.end()
        assert self.cluster.committed() == Counter(range(LETTERS))
        assert self.leader.world.share.window.start == LETTERS

    def change(self) -> None:
        self.earlier.append(self.leader)
        self.leader = Leader(self.cluster)
        self.reports = []

    def end(self) -> None:
        """The state has an end, and the leader hears of it, now or later."""
        transaction = self.cluster.apply()
        if transaction is not None:
            self.reports.append(transaction)
        if self.reports and (self.is_healed or self.dice.random() < 0.5):
            one = self.reports.pop(0)
            is_committed = self.cluster.fates[one]
            self.leader.letters.ended(one, is_committed=is_committed)
            self.leader.world.share.check()

    def old_step(self) -> None:
        """An earlier leader goes on, as if nothing had happened."""
        if self.earlier:
            self.step_of(self.dice.choice(self.earlier))

    def step(self) -> None:
        self.step_of(self.leader)

    def step_of(self, leader: Leader) -> None:
        world, letters = leader.world, leader.letters
        world.pass_time(self.dice.choice((0, 100, 40_000)))
        if leader.attempt is None or leader.attempt.step is None:
            leader.attempt = letters.begin(world.now)
        if leader.attempt is None:
            return
        fault = None if self.is_healed else self.dice.choice((None, None, None, "before", "after"))
        problem = LOST if fault == "before" else self.perform(leader, leader.attempt)
        letters.did(leader.attempt, LOST if fault == "after" else problem, world.now)
        world.share.check()

    def perform(self, leader: Leader, attempt: Attempt) -> Problem | None:
        cluster, step = self.cluster, attempt.step
        if step is Step.BEGIN:
            self.begin(leader, attempt)
            return None
        if step is Step.READ:
            last = attempt.spans[-1][1] if attempt.spans else Offset(-1)
            leader.letters.was_read(attempt, Offset(last + 1), [])
            attempt.copies = 1
            return None
        assert attempt.transaction is not None
        if attempt.transaction.producer_epoch != cluster.epoch:
            return FENCED
        if cluster.unapplied is not None:
            return BUSY
        if step is Step.COPY:
            letters = leader.letters.letters_of(attempt)
            offsets = [at for first, last, _ in letters for at in range(first, last + 1)]
            cluster.copies += [(attempt.transaction, at) for at in offsets]
        elif step is Step.HOLD:
            return self.hold(leader, attempt)
        elif step in (Step.COMMIT, Step.ABORT):
            cluster.decide(commits=step is Step.COMMIT)
            leader.letters.began(attempt, 7, cluster.epoch)
        return None

    def begin(self, leader: Leader, attempt: Attempt) -> None:
        cluster = self.cluster
        if cluster.epoch < 0:
            cluster.epoch = 0
        elif cluster.unapplied is None:
            cluster.decide(commits=False)
        transaction = cluster.apply()
        if transaction is not None:
            self.reports.append(transaction)
        leader.letters.began(attempt, 7, cluster.epoch)

    def hold(self, leader: Leader, attempt: Attempt) -> Problem | None:
        if leader is not self.leader:
            return OVERTAKEN
        assert attempt.transaction is not None
        for one in leader.letters.archiving(attempt).pending:
            for offset in range(one.first_offset, one.last_offset + 1):
                assert offset not in self.cluster.archived, "archived once"
                assert offset not in self.cluster.pending, "pending in one transaction"
                self.cluster.pending[offset] = attempt.transaction
        return None


@pytest.mark.feature("Y07")
@pytest.mark.parametrize("seed", range(40))
def test_each_letter_is_in_the_queue_exactly_once(seed: int) -> None:
    for number in range(5):
        History(seed * 100 + number).run()
