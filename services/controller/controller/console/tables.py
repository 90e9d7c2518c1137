"""Tables: filter, sort and pages, decided on the server from the query of the URL."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar
from urllib.parse import urlencode

ROWS_DEFAULT: Final = 50
ROWS_MAX: Final = 500
Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class Column:
    """Column of a table. ``sort_by`` is None if rows cannot be sorted by it."""

    key: str
    title: str
    sort_by: Callable[[Any], Any] | None = None
    is_number: bool = False


@dataclass(frozen=True, slots=True)
class Shown(Generic[Row]):
    """Rows of one page of a table, and the links to the others."""

    table: "Table[Row]"
    rows: Sequence[Row]
    total: int
    """Rows that the filter leaves."""
    unfiltered: int
    text: str
    """Text of the filter."""
    sort: str
    """Key of the column, with a minus for descending order."""
    page: int
    """Number of the page, from 1."""
    per_page: int
    query: Mapping[str, str] = field(default_factory=dict)

    @property
    def pages(self) -> int:
        """Number of pages, at least 1."""
        return max(1, -(-self.total // self.per_page))

    @property
    def first(self) -> int:
        """Number of the first row shown, from 1; 0 without rows."""
        return (self.page - 1) * self.per_page + 1 if self.rows else 0

    @property
    def last(self) -> int:
        """Number of the last row shown."""
        return (self.page - 1) * self.per_page + len(self.rows)

    def link(self, **changes: object) -> str:
        """Return the query with parameters of this table changed; '' removes one."""
        named = {self.table.parameter(key): str(value) for key, value in changes.items()}
        kept = {key: value for key, value in {**self.query, **named}.items() if value != ""}
        return "?" + urlencode(kept)

    def sort_link(self, column: Column) -> str:
        """Return the query that sorts by a column, or turns its order around."""
        turned = f"-{column.key}" if self.sort == column.key else column.key
        return self.link(sort=turned, page="")

    def order(self, column: Column) -> str | None:
        """Return the value of aria-sort of a column, None if it is not sorted by."""
        return {column.key: "ascending", f"-{column.key}": "descending"}.get(self.sort)

    @property
    def other_parameters(self) -> Mapping[str, str]:
        """Parameters that a new filter keeps."""
        dropped = {self.table.parameter(key) for key in ("q", "page")}
        return {key: value for key, value in self.query.items() if key not in dropped}


@dataclass(frozen=True, slots=True)
class Table(Generic[Row]):
    """Description of a table."""

    columns: Sequence[Column]
    text_of: Callable[[Row], str]
    """Text of a row in which the filter searches."""
    sort: str
    """Order without a choice."""
    label: str = ""
    """Accessible name of the table."""
    prefix: str = ""
    """Prefix of its parameters, where a page has several tables."""
    noun: str = "row"
    is_ordered: bool = False
    """True if rows come in the order of ``sort``, and need not be sorted by it again."""
    nouns: str = ""
    """Plural of ``noun``, if it is not formed with an s."""

    def parameter(self, key: str) -> str:
        """Return the name of a parameter in the query."""
        return self.prefix + key

    def show(self, rows: Iterable[Row], query: Mapping[str, str]) -> Shown[Row]:
        """Return the page of rows that a query selects. A wrong parameter has its default."""
        everything = list(rows)
        text = query.get(self.parameter("q"), "").strip()
        words = text.casefold().split()
        left = everything
        if words:
            left = [row for row in left if _has_all(self.text_of(row).casefold(), words)]
        sort, column = self._chosen(query.get(self.parameter("sort"), self.sort))
        in_order = self.is_ordered and sort == self.sort
        if column is not None and column.sort_by is not None and not in_order:
            left = sorted(left, key=_orderly(column.sort_by), reverse=sort.startswith("-"))
        per_page = _within(query.get(self.parameter("per"), ""), ROWS_DEFAULT, ROWS_MAX)
        pages = max(1, -(-len(left) // per_page))
        page = _within(query.get(self.parameter("page"), ""), 1, pages)
        rows_shown = left[(page - 1) * per_page : page * per_page]
        return Shown(
            self, rows_shown, len(left), len(everything), text, sort, page, per_page, query
        )

    def _chosen(self, sort: str) -> tuple[str, Column | None]:
        for choice in (sort, self.sort):
            for column in self.columns:
                if column.key == choice.removeprefix("-") and column.sort_by is not None:
                    return choice, column
        return "", None


def _orderly(sort_by: Callable[[Any], Any]) -> Callable[[Any], tuple[bool, Any]]:
    """Return a key by which rows without a value come first."""

    def key(row: Any) -> tuple[bool, Any]:
        value = sort_by(row)
        return value is not None, 0 if value is None else value

    return key


def _has_all(text: str, words: Sequence[str]) -> bool:
    return all(word in text for word in words)


def _within(text: str, default: int, most: int) -> int:
    return (
        min(max(1, int(text)), most)
        if text.isascii() and text.isdigit() and len(text) < 10
        else default
    )
