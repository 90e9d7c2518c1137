"""Pages of sorted lists, by a cursor that names the last item of the page before.

A page does not shift when items before it come or go, as a page by number does. Pure.
"""

import base64
import binascii
import bisect
import json
from collections.abc import Sequence
from typing import Final, Generic, NamedTuple, TypeVar

from controller.admin.errors import bad_value

Key = TypeVar("Key", str, int, tuple[str, int])

PAGE_DEFAULT: Final = 100
PAGE_MAX: Final = 1_000
_CURSOR_CHARS_MAX: Final = 1_024


class Page(NamedTuple, Generic[Key]):
    """One page of keys. ``cursor`` leads to the next page; None on the last one."""

    keys: Sequence[Key]
    cursor: str | None
    total: int


def page(keys: Sequence[Key], cursor: str | None, limit: int) -> Page[Key]:
    """Return at most ``limit`` of the sorted ``keys`` after the cursor. Raises AdminError for a
    cursor that is none of this list.
    """
    start = 0
    if cursor is not None:
        start = bisect.bisect_right(keys, _read(cursor, keys))
    shown = keys[start : start + limit]
    more = start + limit < len(keys)
    return Page(shown, _write(shown[-1]) if more else None, len(keys))


def _write(key: str | int | tuple[str, int]) -> str:
    text = json.dumps(key, ensure_ascii=False, separators=(",", ":"))
    return base64.urlsafe_b64encode(text.encode()).decode().rstrip("=")


def _read(cursor: str, keys: Sequence[Key]) -> Key:
    try:
        if len(cursor) > _CURSOR_CHARS_MAX:
            raise ValueError(cursor)
        padded = cursor + "=" * (-len(cursor) % 4)
        key = json.loads(base64.b64decode(padded.encode("ascii"), altchars=b"-_", validate=True))
    except (ValueError, binascii.Error, RecursionError):
        raise _unknown_cursor() from None
    if isinstance(key, list):
        is_pair = len(key) == 2 and isinstance(key[0], str) and type(key[1]) is int
        key = tuple(key) if is_pair else None
    if not isinstance(key, str | int | tuple) or isinstance(key, bool):
        raise _unknown_cursor()
    if keys and type(key) is not type(keys[0]):
        raise _unknown_cursor()
    return key  # type: ignore[return-value]  # of the type of the list's keys, checked above


def _unknown_cursor() -> Exception:
    return bad_value(
        "cursor is not one of this list",
        field="cursor",
        remedy="follow metadata.next of the page before, or leave cursor out for the first page",
    )
