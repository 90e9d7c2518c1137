"""The shard handles every request, and every request of a client has a reply."""

from typing import get_args

from share_coordinator.core import requests
from share_coordinator.core.requests import Reply, Request
from unit.share_coordinator.worlds import World

WITHOUT_AN_ANSWER = {"GroupIdReserved", "TopicsDeleted", "LagsMeasured", "LeadersNotified"}


def test_the_shard_knows_every_request() -> None:
    assert set(World().shard._deciders) == set(get_args(Request))


def test_every_request_has_its_reply() -> None:
    replies = {reply.__name__ for reply in get_args(Reply)}
    asked = {request.__name__ for request in get_args(Request)} - WITHOUT_AN_ANSWER
    assert replies == {f"{name}Reply" for name in asked}


def test_every_reply_says_whether_it_was_refused() -> None:
    for reply in get_args(Reply):
        if reply is not requests.AskStatesReply:  # each of its answers does
            assert "error_code" in reply.__dataclass_fields__
