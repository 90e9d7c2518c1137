"""Durable handles: names of transactions, valid in any process and at any time.

A handle is text that its users pass on unchanged. It identifies one transaction of a transactional
id. An id that expired and is used again has another creation time, so that old handles never
identify its new transactions.
"""

from typing import Final, NamedTuple

_FORM: Final = "1"
_PARTS: Final = 4
_DIGITS_MAX: Final = 20


class Handle(NamedTuple):
    """Fields of a handle."""

    transactional_id: str
    number: int
    """Number of the transaction, counted from 1."""
    created_at: int
    """Wall time in ms of the id's first transaction with a handle."""


def format_handle(handle: Handle) -> str:
    """Return the text ``1.<number>.<created_at>.<transactional id>``."""
    return f"{_FORM}.{handle.number}.{handle.created_at}.{handle.transactional_id}"


def parse_handle(text: str) -> Handle | None:
    """Return the fields of a handle; None if the text is not a handle."""
    parts = text.split(".", _PARTS - 1)
    if len(parts) != _PARTS or parts[0] != _FORM:
        return None
    number, created_at, transactional_id = parts[1:]
    if not (_is_number(number) and _is_number(created_at) and transactional_id):
        return None
    return Handle(transactional_id, int(number), int(created_at))


def transactional_id_of(text: str) -> str | None:
    """Return the transactional id, which determines the shard; None if the text is not a handle."""
    handle = parse_handle(text)
    return handle.transactional_id if handle is not None else None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < _DIGITS_MAX
