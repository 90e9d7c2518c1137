"""Descriptors are divided at start."""

from typing import Any

import pytest
from broker.config import BrokerConfig
from broker.shell.upkeep.descriptor_budget import divide, wanted, within
from tidemark.runtime.service import ServiceError


def config(**settings: Any) -> BrokerConfig:
    return BrokerConfig(broker_id=1, **settings)


@pytest.mark.parametrize("dirs", [("a",), ("a", "b", "c")])
def test_with_what_is_wanted_nothing_is_made_smaller(dirs: tuple[str, ...]) -> None:
    asked = config(log_dirs=dirs)
    enough = divide(asked, wanted(asked))
    assert enough == (10_000, 1_024)
    assert within(asked, enough) is asked
    assert divide(asked, wanted(asked) - 2) != enough


@pytest.mark.parametrize("limit", [512, 1_024, 4_096, 20_000])
def test_with_fewer_there_are_fewer_connections_and_segments(limit: int) -> None:
    asked = config(log_dirs=("a", "b"))
    budget = divide(asked, limit)
    assert 2 * budget.connections + 2 * budget.segments_a_directory + 256 <= limit
    assert within(asked, budget).max_connections == budget.connections < 10_000


def test_with_too_few_it_does_not_start_and_says_what_to_set() -> None:
    with pytest.raises(ServiceError, match=r"raise the hard limit .* to 21280"):
        divide(config(), 300)
    assert divide(config(max_connections=4), 400).connections == 4
