"""Whatever happens in whatever order, and whenever controllers end, no promise is broken: see the
model.
"""

import copy
from collections.abc import Sequence
from itertools import count

from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.model.ids import NO_BROKER, InstantMs
from unit.controller.happenings import HAPPENINGS, Happening, acknowledges, passes
from unit.controller.lives import CutOff, Life
from unit.controller.promises import BROKERS, World, a_tree, partitions_of

Step = tuple[Happening, int, int]
NUMBERS = st.integers(0, 23)
STEPS = st.lists(st.tuples(st.sampled_from(HAPPENINGS), NUMBERS, NUMBERS), max_size=50)
PREPARED = a_tree()


def a_world(before: Life, ops_max: int) -> World:
    """Return the first term with a model. Every broker has followed its feed."""
    world = World(copy.deepcopy(before.tree), before.live.values(), ops_max=ops_max)
    world.begin_with(None, 200)
    for number in range(len(BROKERS)):
        acknowledges(world, number, 0)
    return world


def next_term(last: World, ops_max: int) -> World:
    """Return the term of a controller that lives through its beginning."""
    for _ in count():
        world = World(last.tree, last.live.values(), ops_max=ops_max)
        world.now = InstantMs(last.now + 1)
        try:
            return world.begin_with(last.model, last.count)
        except CutOff:
            continue
    raise AssertionError("there is always another one")


def lived(steps: Sequence[Step], ops_max: int) -> World:
    """Return the world after these steps, of which a controller may see only a part."""
    world = a_world(PREPARED, ops_max)
    for happens, one, two in steps:
        try:
            happens(world, one, two)
        except CutOff:
            world = next_term(world, ops_max)
        if world.machine.image is None:  # it has resigned, without subscribers
            world = next_term(world, ops_max)
    world.session.left = None
    return world


@given(STEPS, st.integers(2, 8))
@settings(max_examples=40, deadline=None)
def test_no_record_is_lost_and_whoever_can_lead_leads(steps: Sequence[Step], ops_max: int) -> None:
    world = lived(steps, ops_max)
    for _ in range(3):
        for number in range(len(BROKERS)):
            acknowledges(world, number, 0)
        passes(world, 3, 0)
    brokers = world.image.brokers.values()
    able = {one.broker_id for one in brokers if not one.fenced and not one.shutting_down}
    for _, state, _ in partitions_of(world.image):
        assert state.leader != NO_BROKER or able.isdisjoint((*state.isr, *state.elr)), state
