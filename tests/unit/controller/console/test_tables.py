"""Filter, sort and pages of tables."""

from dataclasses import replace

import pytest
from controller.console.tables import Column, Table

ROWS: list[dict[str, object]] = [
    {"name": name, "size": size} for name, size in (("b", 2), ("a", None), ("Cé", 30))
]
TABLE: Table[dict[str, object]] = Table(
    columns=(
        Column("name", "Name", lambda row: row["name"]),
        Column("size", "Size", lambda row: row["size"], is_number=True),
        Column("other", "Other"),
    ),
    text_of=lambda row: str(row["name"]),
    sort="name",
)


def names(query: dict[str, str]) -> list[object]:
    return [row["name"] for row in TABLE.show(ROWS, query).rows]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ({}, ["Cé", "a", "b"]),
        ({"sort": "-size"}, ["Cé", "b", "a"]),
        ({"sort": "size"}, ["a", "b", "Cé"]),
        ({"sort": "other"}, ["Cé", "a", "b"]),
        ({"sort": "nonsense"}, ["Cé", "a", "b"]),
        ({"q": "cÉ"}, ["Cé"]),
        ({"q": "b a"}, []),
        ({"per": "2"}, ["Cé", "a"]),
        ({"per": "2", "page": "2"}, ["b"]),
        ({"per": "2", "page": "99"}, ["b"]),
        ({"per": "x", "page": "-1"}, ["Cé", "a", "b"]),
    ],
)
def test_the_query_selects_rows(query: dict[str, str], expected: list[str]) -> None:
    assert names(query) == expected


def test_links_keep_the_other_parameters() -> None:
    shown = TABLE.show(ROWS, {"q": "b", "internal": "yes", "page": "1", "sort": "name"})
    assert shown.link(page=2) == "?q=b&internal=yes&page=2&sort=name"
    assert shown.sort_link(TABLE.columns[0]) == "?q=b&internal=yes&sort=-name"
    assert shown.other_parameters == {"internal": "yes", "sort": "name"}


def test_a_page_says_which_rows_it_has() -> None:
    shown = TABLE.show(ROWS, {"per": "2", "page": "2"})
    assert (shown.first, shown.last, shown.total, shown.pages) == (3, 3, 3, 2)
    assert TABLE.show([], {}).first == 0


def test_rows_that_come_in_order_are_sorted_by_other_columns_only() -> None:
    ordered = replace(TABLE, is_ordered=True)
    reverse = list(reversed(ROWS))
    assert list(ordered.show(reverse, {}).rows) == reverse
    assert ordered.show(reverse, {"sort": f"-{TABLE.sort}"}).rows != reverse
