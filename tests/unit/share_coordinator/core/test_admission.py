from typing import Any

import pytest
from share_coordinator.core.admission import TEXT_BYTES_MAX, request_problem
from share_coordinator.core.requests import ShareGroupHeartbeat
from tidemark.model.errors import ErrorCode
from unit.share_coordinator.worlds import World


def heartbeat(**said: Any) -> ShareGroupHeartbeat:
    whole: dict[str, Any] = {
        "group_id": "g",
        "member_id": "m",
        "member_epoch": 0,
        "subscribed_topic_names": ("t",),
    }
    return ShareGroupHeartbeat(**{**whole, **said})


@pytest.mark.parametrize(
    "said",
    [
        {"group_id": ""},
        {"member_id": ""},
        {"rack_id": ""},
        {"member_epoch": -2},
        {"subscribed_topic_names": None},
        {"subscribed_topic_names": ()},
        {"client_id": "x" * 40_000},
        {"member_id": "\u00e4" * 20_000},
        {"subscribed_topic_names": ("x" * 30_000,) * (TEXT_BYTES_MAX // 30_000 + 1)},
    ],
)
def test_a_request_that_cannot_be_is_refused(said: dict[str, Any]) -> None:
    refused = request_problem(heartbeat(**said))
    assert refused is not None
    assert refused.error_code is ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize(
    "said", [{}, {"member_epoch": 3, "subscribed_topic_names": None}, {"member_epoch": -1}]
)
def test_a_request_that_can_be(said: dict[str, Any]) -> None:
    assert request_problem(heartbeat(**said)) is None


def test_a_bad_request_is_answered_for_a_known_and_for_an_unknown_group() -> None:
    world = World(t=1)
    for _ in range(2):
        assert world.beat("a", -7).error_code is ErrorCode.INVALID_REQUEST
        world.join("a", "t")


def test_a_member_in_any_epoch_may_leave() -> None:
    world = World(t=1)
    world.join("a", "t")
    world.join("a", "t")
    assert world.beat("a", -1).error_code is ErrorCode.NONE
