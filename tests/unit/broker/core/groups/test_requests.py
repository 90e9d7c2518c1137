"""Requests and replies are plain values: comparable and immutable."""

from dataclasses import FrozenInstanceError
from typing import get_args

import pytest
from broker.core.groups import requests
from broker.core.groups.requests import GroupReply, GroupRequest
from broker.core.groups.shard import GroupShard
from unit.broker.core.groups.group_worlds import SETTINGS, FewTopics, beat, join


def test_requests_compare_by_value() -> None:
    assert join(new="a") == join(new="a")
    assert join(new="a") != join(new="b")


def test_requests_do_not_change() -> None:
    with pytest.raises(FrozenInstanceError):
        beat("a", 1).generation_id = 2  # type: ignore[misc]


def test_every_request_is_of_a_group() -> None:
    lacking = [one for one in get_args(GroupRequest) if "group_id" not in one.__annotations__]
    assert lacking == []


def test_every_request_has_somebody_who_decides() -> None:
    shard = GroupShard(SETTINGS, FewTopics)
    assert shard._deciders.keys() == set(get_args(GroupRequest))


def test_every_reply_says_what_went_wrong() -> None:
    lacking = [one for one in get_args(GroupReply) if "error_code" not in one.__annotations__]
    assert lacking == []


def test_names_of_settings_and_topics_are_here_too() -> None:
    assert requests.GroupSettings is type(SETTINGS)
