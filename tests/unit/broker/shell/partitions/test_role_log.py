"""Log lines of the roles that an image gives to partitions."""

import logging

import pytest
from broker.shell.partitions.role_log import LINES_MAX
from broker.shell.partitions.role_log import __name__ as module
from unit.broker.shell.broker_worlds import World, topic


@pytest.mark.parametrize(
    ("partitions", "lines"),
    [
        (2, ["partition role set", "partition role set"]),
        (LINES_MAX, ["partition role set"] * LINES_MAX),
        (LINES_MAX + 1, ["partition roles set"]),
    ],
)
def test_many_partitions_of_one_image_have_a_line_for_each_leader(
    caplog: pytest.LogCaptureFixture, partitions: int, lines: list[str]
) -> None:
    caplog.set_level(logging.INFO, logger=module)
    world = World()
    world.show(topic(partitions=partitions))
    assert [one.message for one in caplog.records if one.name == module] == lines
    caplog.clear()
    world.change(topics_changed=(topic(partitions=partitions),))
    assert [one for one in caplog.records if one.name == module] == [], "no role changed"
