from unit.share_coordinator.worlds import World


def test_groups_members_states_and_records_are_counted() -> None:
    world = World(orders=3)
    world.join("m", "orders")
    world.settle("m")
    found = world.shard.statistics()
    assert (found.groups_by_state, found.members, found.states) == ({"Stable": 1}, 1, 3)
    assert 3 < found.records_live <= found.records_needed


def test_a_deleted_group_is_not_counted() -> None:
    world = World(orders=3)
    found = world.shard.statistics()
    assert (found.groups_by_state, found.members, found.states) == ({}, 0, 0)
    assert (found.records_live, found.records_needed) == (0, 0)
