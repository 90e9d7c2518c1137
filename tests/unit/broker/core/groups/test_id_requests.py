"""Requests about ids are plain values, as those of groups are."""

from typing import get_args

from broker.core.groups.id_requests import (
    CoordinatorReply,
    CoordinatorRequest,
    ReserveGroupId,
)


def test_every_request_is_of_a_group() -> None:
    kinds = get_args(CoordinatorRequest)
    assert [one for one in kinds if "group_id" not in one.__annotations__] == []


def test_every_reply_has_an_error_code() -> None:
    kinds = get_args(CoordinatorReply)
    assert [one for one in kinds if "error_code" not in one.__annotations__] == []


def test_requests_compare_by_value() -> None:
    assert ReserveGroupId("g", 1) == ReserveGroupId("g", 1)
    assert ReserveGroupId("g", 1) != ReserveGroupId("g", 2)
