"""Figures of the groups of one shard."""

from broker.core.groups.statistics import figures
from unit.broker.core.groups.group_worlds import World, commit, committed, stable


def shown(world: World) -> list[tuple[str, int, list[int]]]:
    return [
        (one.group_id, one.member_count, [at.value.offset for at in one.positions.values()])
        for one in figures(world.shard)
    ]


def test_a_shard_without_groups_has_no_figures() -> None:
    assert shown(World()) == []


def test_a_group_that_has_only_offsets_has_no_members() -> None:
    world = World()
    committed(world, commit(42))
    assert shown(world) == [("g", 0, [42])]


def test_members_are_counted() -> None:
    world = World()
    stable(world, "a", "b")
    assert shown(world) == [("g", 2, [])]
