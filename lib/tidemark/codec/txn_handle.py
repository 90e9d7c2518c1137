"""Durable handles: the name of one transaction, good in any process and at any time.

A handle is text that its users pass on as it is: which transaction of which transactional id. An id
that expired and came back has another time of birth, so that old handles never name its new
transactions.
"""

from typing import Final, NamedTuple

_FORM: Final = "1"
_PARTS: Final = 4
_DIGITS_MAX: Final = 20


class Handle(NamedTuple):
    """What a handle says."""

    transactional_id: str
    number: int
    """Of the transaction, counted from 1."""
    created_at: int
    """Wall ms of the id's first transaction with a handle."""


def format_handle(handle: Handle) -> str:
    """The text: ``1.<number>.<created_at>.<transactional id>``."""
    return f"{_FORM}.{handle.number}.{handle.created_at}.{handle.transactional_id}"


def parse_handle(text: str) -> Handle | None:
    """What the text says; None when it is no handle."""
    parts = text.split(".", _PARTS - 1)
    if len(parts) != _PARTS or parts[0] != _FORM:
        return None
    number, created_at, transactional_id = parts[1:]
    if not (_is_number(number) and _is_number(created_at) and transactional_id):
        return None
    return Handle(transactional_id, int(number), int(created_at))


def transactional_id_of(text: str) -> str | None:
    """Whose shard to ask; None when the text is no handle."""
    handle = parse_handle(text)
    return handle.transactional_id if handle is not None else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < _DIGITS_MAX
