"""A group whose members change their protocol one after the other, in many random worlds."""

from collections import Counter

import pytest
from unit.broker.core.groups.mixed_worlds import PARTITIONS, Story


@pytest.mark.feature("A09", "A11", "E13")
@pytest.mark.parametrize("has_cuts", [False, True])
@pytest.mark.parametrize("seed", range(25))
def test_no_partition_has_two_owners_and_no_position_falls(seed: int, has_cuts: bool) -> None:
    story = Story(seed, has_cuts=has_cuts)
    for _ in range(400):
        story.step()
    story.settle()
    owned = Counter(one for client in story.clients for one in client.owned)
    assert owned == Counter(PARTITIONS)


def test_these_worlds_see_conversions_both_ways() -> None:
    stories = [Story(seed, has_cuts=False) for seed in range(10)]
    for story in stories:
        for _ in range(400):
            story.step()
    moves = {pair for story in stories for pair in zip(story.kinds, story.kinds[1:], strict=False)}
    upgrades = {("classic", "mixed 1"), ("classic", "mixed 2")}
    downgrades = {("mixed 1", "classic"), ("mixed 2", "classic")}
    assert moves >= upgrades | downgrades
