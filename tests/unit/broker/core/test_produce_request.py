"""PendingProduce: phases of one request, and against a plain twin that looks at everything anew."""

from dataclasses import dataclass, field

import pytest
from broker.core.commit_wait import CommitWait
from broker.core.partition import Partition
from broker.core.produce_request import Action, PendingProduce, Phase, Step
from hypothesis import given
from hypothesis import strategies as st
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs, Offset
from unit.broker.core.replicated import NOW, a_partition, lead_in

DUE = InstantMs(NOW + 100)
TIMED_OUT, NOT_LEADER = ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER


@dataclass(eq=False)
class Hosted:
    """A partition with one record that another replica lacks."""

    partition: Partition = field(default_factory=lambda: a_partition(1))
    epoch: int = 5

    def __post_init__(self) -> None:
        lead_in(self.partition, self.epoch, (1, 2), (1, 2))
        self.partition.bounds.log_end = Offset(1)

    def commit(self) -> None:
        self.partition.bounds.high_watermark = 1

    def lose(self) -> None:
        self.epoch += 1
        lead_in(self.partition, self.epoch, (1, 2), (1, 2))

    def wait(self) -> CommitWait["Hosted"]:
        return CommitWait.of(self, 1)


Pending = PendingProduce[Hosted, int]


def pending(*hosted: Hosted, acks: int = -1) -> Pending:
    """A request that has appended to these partitions."""
    made: Pending = PendingProduce(acks, NOW, 100)
    for place, each in enumerate(hosted):
        made.appended(each.wait(), place)
    return made


def test_a_request_waits_for_its_commits_until_it_is_due() -> None:
    hosted = Hosted()
    made = pending(hosted)
    assert made.taken() == Step(Action.PARK, [], [(hosted, 1)], NOW, 100)
    made.check()
    hosted.commit()
    assert made.committed() == Step(Action.ANSWER)
    assert made.phase is Phase.ANSWERED


def test_what_is_late_times_out_and_what_is_committed_does_not() -> None:
    first, second = Hosted(), Hosted()
    made = pending(first, second)
    made.taken()
    first.commit()
    assert made.woken(DUE) == Step(Action.ANSWER, [(1, TIMED_OUT)])
    assert not made.has_failed


def test_a_lost_leadership_fails_its_partition_and_the_others_are_waited_for() -> None:
    first, second = Hosted(), Hosted()
    made = pending(first, second)
    made.taken()
    first.lose()
    later = InstantMs(NOW + 60)
    expected = Step(Action.PARK, [(0, NOT_LEADER)], [(second, 1)], later, 40)
    assert made.woken(later) == expected
    assert made.has_failed


def test_what_was_committed_is_acknowledged_though_the_leadership_is_lost_since() -> None:
    hosted = Hosted()
    made = pending(hosted)
    made.taken()
    hosted.commit()
    hosted.lose()
    assert made.committed() == Step(Action.ANSWER)


def test_a_detour_is_waited_for_before_anything_is_parked() -> None:
    hosted = Hosted()
    made = pending()
    made.detour_began()
    made.detour_began()
    assert made.taken().action is Action.HOLD
    made.appended(hosted.wait(), 0)
    assert made.detour_ended(NOW).action is Action.HOLD
    made.check()
    assert made.detour_ended(NOW).action is Action.PARK


def test_what_cannot_be_parked_is_given_up() -> None:
    made = pending(Hosted())
    made.taken()
    assert made.not_parked() == Step(Action.ANSWER, [(0, TIMED_OUT)])


@pytest.mark.parametrize(("fails", "action"), [(False, Action.NO_ANSWER), (True, Action.CLOSE)])
def test_acks_0_has_no_answer(*, fails: bool, action: Action) -> None:
    made = pending(acks=0)
    if fails:
        made.refused()
    assert made.taken().action is action


def test_inputs_out_of_phase_are_refused() -> None:
    made = pending(Hosted())
    with pytest.raises(AssertionError):
        made.committed()
    made.taken()
    with pytest.raises(AssertionError):
        made.taken()


@dataclass
class PlainProduce:
    """Slow and obvious: looks at every partition each time, and keeps the first result it has."""

    epochs: dict[Hosted, int]
    results: dict[Hosted, ErrorCode] = field(default_factory=dict)

    def look(self, *, over: bool) -> bool:
        """Return True if the request can be answered."""
        for each, epoch in self.epochs.items():
            if each in self.results:
                continue
            if each.epoch != epoch:
                self.results[each] = NOT_LEADER
            elif each.partition.high_watermark == 1:
                self.results[each] = ErrorCode.NONE
            elif over:
                self.results[each] = TIMED_OUT
        return len(self.results) == len(self.epochs)


@dataclass
class Run:
    """A request whose first partitions are on detours, and what its steps have failed."""

    hosted: list[Hosted]
    detours: int
    made: Pending = field(default_factory=pending)
    failed: dict[int, ErrorCode] = field(default_factory=dict)
    action: Action = Action.HOLD

    def __post_init__(self) -> None:
        for place, each in enumerate(self.hosted):
            if place < self.detours:
                self.made.detour_began()
            else:
                self.made.appended(each.wait(), place)
        self.take(self.made.taken())

    @property
    def is_answered(self) -> bool:
        return self.made.phase is Phase.ANSWERED

    def end_detour(self, now: InstantMs) -> Hosted:
        self.detours -= 1
        late = self.hosted[self.detours]
        self.made.appended(late.wait(), self.detours)
        self.take(self.made.detour_ended(now))
        return late

    def take(self, step: Step[Hosted, int]) -> None:
        self.made.check()
        self.action = step.action
        for place, code in step.failures:
            assert place not in self.failed, "a result fails once"
            self.failed[place] = code


EVENTS = st.lists(
    st.tuples(st.sampled_from(["commit", "lose", "tick", "detour"]), st.integers(0, 3)), max_size=12
)


@given(st.integers(1, 4), st.integers(0, 3), EVENTS)
def test_the_answer_is_that_of_the_plain_twin(
    count: int, detours: int, events: list[tuple[str, int]]
) -> None:
    hosted, now = [Hosted() for _ in range(count)], NOW
    run = Run(hosted, min(detours, count))
    twin = PlainProduce(dict.fromkeys(hosted[run.detours :], 5))
    for event, number in [*events, *[("detour", 0)] * run.detours, ("tick", 3)]:
        if run.is_answered:
            break
        if event == "commit":
            hosted[number % count].commit()
        elif event == "lose":
            hosted[number % count].lose()
        elif event == "tick":
            now = InstantMs(now + 40 * number)
        elif run.detours:
            late = run.end_detour(now)
            twin.epochs[late] = late.epoch
        if run.action is Action.PARK:
            run.take(run.made.woken(now))
        is_over = not run.detours and twin.look(over=now >= DUE)
        assert is_over == run.is_answered
    results = [run.failed.get(place, ErrorCode.NONE) for place in range(count)]
    assert results == [twin.results[each] for each in hosted]
