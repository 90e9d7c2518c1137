"""CommitWait: records are committed, lost, or late."""

from dataclasses import dataclass

import pytest
from broker.core.commit_wait import CommitWait
from broker.core.partition import Partition
from tidemark.model.errors import ErrorCode
from unit.broker.core.replicated import NOW, PlainReplica, state, three


@dataclass(eq=False)
class Hosted:
    partition: Partition


def appended(**configs: str) -> tuple[PlainReplica, PlainReplica, CommitWait[Hosted]]:
    leader, second, _ = three((1, 2), **configs)
    leader.write(1)
    return leader, second, CommitWait.of(Hosted(leader.partition), 1)


def test_records_are_committed_when_the_isr_has_them() -> None:
    leader, second, commit = appended()
    assert (commit.is_lost, commit.is_committed) == (False, False)
    for _ in range(2):
        second.fetch_from(leader, NOW)
    assert commit.is_committed


@pytest.mark.parametrize("epoch", [6, 7])
def test_records_of_a_former_leader_epoch_are_lost(epoch: int) -> None:
    leader, _, commit = appended()
    leader.take(state(2, (1, 2), epoch=6, version=2), NOW)
    if epoch == 7:
        leader.take(state(1, (1, 2), epoch=7, version=3), NOW)
    assert commit.is_lost
    assert commit.failure() is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.parametrize(
    ("min_insync", "code"),
    [("1", ErrorCode.REQUEST_TIMED_OUT), ("2", ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND)],
)
def test_a_late_write_names_what_is_missing(min_insync: str, code: ErrorCode) -> None:
    leader, _, commit = appended(min_insync_replicas=min_insync)
    leader.take(state(1, (1,), version=2), NOW)
    assert commit.failure() is code
