"""Refusals by role: readers and writers get the same one."""

from itertools import product

import pytest
from broker.core.partition import Partition, Refusal
from broker.core.role import FAILED, FENCED, NOT_LEADER, UNKNOWN_EPOCH, Role
from broker.core.routing import question_refused
from tidemark.model.ids import BrokerId, LeaderEpoch
from unit.broker.core.replicated import SIZE, WALL, a_partition, follower, header, lead_in


def replica(role: Role) -> Partition:
    """In leader epoch 5."""
    made = follower() if role is Role.FOLLOWER else a_partition(1)
    if role is Role.OFFLINE:
        made.become_offline(BrokerId(-1), LeaderEpoch(5))
    elif role is not Role.FOLLOWER:
        lead_in(made, 5, (1,), (1,))
    if role is Role.FAILED:
        made.become_failed()
    return made


REFUSALS = {
    (Role.LEADER, -1): None,
    (Role.LEADER, 4): FENCED,
    (Role.LEADER, 5): None,
    (Role.LEADER, 6): UNKNOWN_EPOCH,
}


@pytest.mark.parametrize(
    ("role", "told"),
    [
        (Role.LEADER, (None, FENCED, None, UNKNOWN_EPOCH)),
        (Role.FOLLOWER, (NOT_LEADER, FENCED, NOT_LEADER, UNKNOWN_EPOCH)),
        (Role.OFFLINE, (NOT_LEADER, FENCED, NOT_LEADER, UNKNOWN_EPOCH)),
        (Role.FAILED, (FAILED,) * 4),
    ],
)
def test_a_client_hears_first_of_another_leader_epoch(
    role: Role, told: tuple[Refusal | None, ...]
) -> None:
    made = replica(role)
    assert tuple(question_refused(made, epoch) for epoch in (-1, 4, 5, 6)) == told


@pytest.mark.parametrize(("role", "epoch"), list(product(Role, (-1, 4, 5, 6))))
def test_a_role_refuses_reads_and_writes_alike(role: Role, epoch: int) -> None:
    made = replica(role)
    other = FAILED if role is Role.FAILED else NOT_LEADER
    refused = REFUSALS.get((role, epoch), other)
    admitted = made.admit(header(), SIZE, acks=1, leader_epoch_expected=epoch, now_ms=WALL)
    assert made.epoch_refused(epoch) == refused
    assert (admitted == refused) == (refused is not None)
