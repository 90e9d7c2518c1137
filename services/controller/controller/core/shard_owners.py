"""Who serves which shard: the shards of a coordinator's state topic, spread over live replicas.

A shard is one partition of the state topic. The owner epoch rises whenever a shard is given to a
replica, and whenever its owner acquires it: whoever writes with a lower one is refused by the
partition itself. So a shard may move at once, without waiting for its last owner.
"""

from collections import Counter
from collections.abc import Iterable, Set
from typing import Final

from tidemark.model.metadata import NO_COORDINATOR, TXN, ShardOwner

STATE_TOPICS: Final = {TXN: "__transaction_state"}
"""The topic that holds the state of each kind of coordinator, a partition a shard."""

Owners = tuple[ShardOwner, ...]


def assign(owners: Owners, live: Set[int], shard_count: int) -> Owners:
    """The shards that change hands now: those of nobody and of the dead go to whoever of the live
    has least, and are nobody's when nobody lives. The others stay where they are.

    ``shard_count`` may exceed ``owners`` (the topic is new, or has grown), and is not obeyed when
    it is less: a shard's epoch is never forgotten.
    """
    known = extended(owners, shard_count)
    loads = _loads(known, live)
    changed = []
    for one in known:
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
    """Moves that bring the live closer to each having the same, within one; as few as that takes,
    and no more than ``moves_max`` at a time: each costs a reading of the shard's log.
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
    """Whether somebody has two more than somebody else."""
    return is_uneven(_loads(owners, live))


def is_uneven(loads: Counter[int]) -> bool:
    """Of counted shards, a count for each of the live."""
    return bool(loads) and max(loads.values()) - min(loads.values()) > 1


def given_to(owner: ShardOwner, coordinator_id: int) -> ShardOwner:
    """The shard's next owner, maybe the same one: under a higher epoch."""
    return ShardOwner(owner.shard, coordinator_id, owner.owner_epoch + 1)


def extended(owners: Owners, shard_count: int) -> Owners:
    """With shards of nobody up to ``shard_count``."""
    return owners + tuple(map(ShardOwner, range(len(owners), shard_count)))


def of_coordinator(owners: Iterable[ShardOwner], coordinator_id: int) -> Owners:
    """What one replica owns."""
    return tuple(one for one in owners if one.coordinator_id == coordinator_id)


def check_owners(owners: Owners, live: Set[int]) -> None:
    """Assert what holds for every kind."""
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
