"""What assignors are given, and which targets are logged."""

from broker.core.groups.consumer.admission import Admitted
from broker.core.groups.consumer.member import ConsumerMember
from broker.core.groups.consumer.targets import candidates_for, changed_targets, target_before
from unit.broker.core.groups.consumer.worlds import World

NEW = Admitted(ConsumerMember("o"))


def test_a_member_that_replaces_another_has_its_target() -> None:
    world = World(a=2)
    world.join("m", "a", instance_id="i")
    state = world.group.logged
    old = state.members["m"]
    heir = Admitted(old.taken_over_by("n"), replaces=old)
    assert target_before(state, heir) == state.target_of("m") != {}
    assert target_before(state, NEW) == {}
    candidates = candidates_for(state, {"n": heir.member}, heir, {old.subscription: frozenset()})
    assert [(one.member_id, one.instance_id) for one in candidates] == [("n", "i")]
    assert candidates[0].target == state.target_of("m")


def test_only_changes_are_logged_and_the_empty_target_of_a_new_member() -> None:
    world = World(a=2)
    world.join("m", "a")
    state = world.group.logged
    same = {"m": state.target_of("m"), "o": {}}
    assert [one.member_id for one in changed_targets(state, same, NEW)] == ["o"]  # type: ignore[union-attr]
    asking = Admitted(state.members["m"])
    assert changed_targets(state, {"m": state.target_of("m")}, asking) == []
    assert len(changed_targets(state, {"m": {}}, asking)) == 1
