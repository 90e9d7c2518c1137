"""Pages of sorted lists by cursor."""

import pytest
from controller.admin.errors import AdminError
from controller.admin.paging import page

NAMES = [f"topic-{number:03}" for number in range(25)]


def all_pages(keys: list[str], limit: int) -> list[str]:
    found: list[str] = []
    cursor = None
    while True:
        shown = page(keys, cursor, limit)
        found += shown.keys
        cursor = shown.cursor
        if cursor is None:
            return found


@pytest.mark.parametrize("limit", [1, 7, 25, 100])
def test_pages_follow_one_another_without_gap_or_repetition(limit: int) -> None:
    assert all_pages(NAMES, limit) == NAMES


def test_a_page_does_not_shift_when_items_before_it_come_and_go() -> None:
    first = page(NAMES, None, 10)
    changed = sorted([*NAMES[5:], "topic-000a", "topic-0"])
    assert page(changed, first.cursor, 3).keys == NAMES[10:13]


def test_the_last_page_has_no_cursor_even_if_it_is_full() -> None:
    assert page(NAMES, None, 25).cursor is None
    assert page(NAMES, None, 24).cursor is not None


def test_pairs_page_in_order_of_numbers() -> None:
    keys = [("a", number) for number in range(12)]
    first = page(keys, None, 11)
    assert page(keys, first.cursor, 5).keys == [("a", 11)]


@pytest.mark.parametrize("cursor", ["", "%%%", "bm8", "W10", "MQ", "dHJ1ZQ", "é", "[" * 2000])
def test_a_cursor_of_another_list_is_refused_by_field(cursor: str) -> None:
    with pytest.raises(AdminError) as refused:
        page(NAMES, cursor, 10)
    assert (refused.value.status, refused.value.error_code) == (400, 40002)
    assert refused.value.field == "cursor"
