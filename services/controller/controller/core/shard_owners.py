"""Owners of shards: the shards of a coordinator's state topic, spread over live replicas.

A shard is one partition of the state topic. Its owner epoch rises whenever the shard is assigned,
and whenever its owner acquires it. The partition refuses writes with a lower owner epoch, so a
shard can move at once, without waiting for its last owner.
"""

from collections import Counter
from collections.abc import Iterable, Set
from typing import Final

from tidemark.model.metadata import NO_COORDINATOR, SHARE, TXN, ShardOwner
from tidemark.model.topics import SHARE_GROUP_STATE, TRANSACTION_STATE

STATE_TOPICS: Final = {TXN: TRANSACTION_STATE, SHARE: SHARE_GROUP_STATE}
"""Topic with the state of each kind of coordinator. Each of its partitions is a shard."""

Owners = tuple[ShardOwner, ...]


def assign(owners: Owners, live: Set[int], shard_count: int) -> Owners:
    """Return the shards that get another owner. A shard without a live owner goes to the live
    replica with the fewest shards, or has no owner if there is none. Other shards stay.

    ``shard_count`` may exceed ``owners``, if the topic is new or has grown. A smaller value is
    ignored: the epoch of a shard is never forgotten.
    """
    every = extended(owners, shard_count)
    loads = _loads(every, live)
    changed = []
    for one in every:
        if one.coordinator_id in loads:
            continue
        if loads:
            given = given_to(one, _least(loads))
            loads[given.coordinator_id] += 1
            changed.append(given)
        elif one.coordinator_id != NO_COORDINATOR:
            changed.append(one._replace(coordinator_id=NO_COORDINATOR))
        elif one.shard >= len(owners):
            changed.append(one)
    return tuple(changed)


def rebalance(owners: Owners, live: Set[int], moves_max: int) -> Owners:
    """Return the fewest moves after which no live replica has two shards more than another, but at
    most ``moves_max`` of them: after each move the shard's log has to be read.
    """
    assert moves_max > 0, "moves_max"
    loads = _loads(owners, live)
    moved: dict[int, ShardOwner] = {}
    while len(moved) < moves_max and is_uneven(loads):
        giver, taker = _most(loads), _least(loads)
        shard = max(
            one.shard for one in owners if one.coordinator_id == giver and one.shard not in moved
        )
        moved[shard] = given_to(owners[shard], taker)
        loads[giver] -= 1
        loads[taker] += 1
    return tuple(moved[shard] for shard in sorted(moved))


def needs_rebalancing(owners: Owners, live: Set[int]) -> bool:
    """True if one live replica has two shards more than another."""
    return is_uneven(_loads(owners, live))


def is_uneven(loads: Counter[int]) -> bool:
    """True if two of these numbers of shards, one for each live replica, differ by more than 1."""
    return bool(loads) and max(loads.values()) - min(loads.values()) > 1


def given_to(owner: ShardOwner, coordinator_id: int) -> ShardOwner:
    """Return the shard with its next owner, which may be the same one, under a higher epoch."""
    return ShardOwner(owner.shard, coordinator_id, owner.owner_epoch + 1)


def extended(owners: Owners, shard_count: int) -> Owners:
    """Return the owners, with shards that have none up to ``shard_count``."""
    return owners + tuple(map(ShardOwner, range(len(owners), shard_count)))


def of_coordinator(owners: Iterable[ShardOwner], coordinator_id: int) -> Owners:
    """Return the shards of one replica."""
    return tuple(one for one in owners if one.coordinator_id == coordinator_id)


def check_owners(owners: Owners, live: Set[int]) -> None:
    """Assert the invariants of the owners of one kind."""
    for number, one in enumerate(owners):
        assert one.shard == number, f"shard {one.shard} is in place {number}"
        assert one.owner_epoch >= 0, "owner epochs only rise"
        if one.coordinator_id != NO_COORDINATOR:
            assert one.coordinator_id in live, f"shard {number} belongs to a registered one"
            assert one.owner_epoch > 0, f"shard {number} has an owner without an epoch"


def _loads(owners: Owners, live: Set[int]) -> Counter[int]:
    loads = Counter(dict.fromkeys(live, 0))
    loads.update(one.coordinator_id for one in owners if one.coordinator_id in live)
    return loads


def _least(loads: Counter[int]) -> int:
    return min(loads, key=lambda one: (loads[one], one))


def _most(loads: Counter[int]) -> int:
    return max(loads, key=lambda one: (loads[one], one))
