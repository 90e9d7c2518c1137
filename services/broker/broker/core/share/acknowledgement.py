"""Acknowledgements of records by their holder: checked as a whole, then applied as a whole."""

from collections.abc import Sequence
from enum import IntEnum
from itertools import groupby
from typing import Final, NamedTuple

from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs, Offset
from tidemark.model.share_state import TransactionKey

from broker.core.share.settings import ShareSettings
from broker.core.share.states import ACQUIRED, NEXT_DELIVERY, Cause
from broker.core.share.window import READY, Lock, Range, Transition, Window, hand_over


class AcknowledgeType(IntEnum):
    """``AcknowledgeTypes`` of ShareFetch and ShareAcknowledge requests."""

    GAP = 0
    """The offset has no record."""
    ACCEPT = 1
    RELEASE = 2
    REJECT = 3
    RENEW = 4
    """Start the lock's time again."""


class AcknowledgementBatch(NamedTuple):
    """Consecutive offsets of one share-partition, with one type for all or a type for each."""

    first_offset: Offset
    last_offset: Offset
    types: Sequence[int]
    delay_ms: int = 0
    """Delay before released records are delivered again; 0: by the group's configuration."""
    is_unseen: bool = False
    """The application never received these records: they are released at once, and their delivery
    does not count, up to ``ShareSettings.unseen_max`` times.
    """


class Answer(NamedTuple):
    """Acknowledge error of one share-partition."""

    error_code: ErrorCode
    message: str | None = None


class Applied(NamedTuple):
    """Ranges whose transition is to be written, and ranges whose lock was renewed."""

    moved: list[Range]
    renewed: list[Range]


class _Run(NamedTuple):
    """Consecutive offsets of one type, none of those that are ignored."""

    first: Offset
    last: Offset
    type: AcknowledgeType
    delay_ms: int
    is_unseen: bool


DONE: Final = Answer(ErrorCode.NONE)
_KNOWN_TYPES: Final = frozenset(AcknowledgeType)
_NOT_ACQUIRED: Final = "not acquired"
_NOT_OWNER: Final = "acquired by another member"
_PENDING: Final = "acknowledged in a transaction that is open"
_UNDER_WAY: Final = "being acknowledged already"


def malformed(batches: Sequence[AcknowledgementBatch]) -> Answer | None:
    """INVALID_REQUEST for batches that no state could make right, else None."""
    before = -1
    for first, last, types, delay_ms, is_unseen in batches:
        if first < 0 or last < first:
            return _invalid(
                f"batch {first}-{last}: the first offset is after the last, or negative"
            )
        if first <= before:
            return _invalid(f"batch {first}-{last} does not come after offset {before}")
        if len(types) not in (1, last - first + 1):
            return _invalid(
                f"batch {first}-{last} has {len(types)} acknowledge types; send one for the batch,"
                f" or one for each of its {last - first + 1} offsets"
            )
        unknown = set(types) - _KNOWN_TYPES
        if unknown:
            return _invalid(f"batch {first}-{last}: no acknowledge type {min(unknown)}")
        if delay_ms < 0:
            return _invalid(f"batch {first}-{last}: a delay of {delay_ms} ms is negative")
        if is_unseen and set(types) != {AcknowledgeType.RELEASE}:
            return _invalid(
                f"batch {first}-{last}: records that the application never received can only be"
                " released"
            )
        before = last
    return None


def _invalid(message: str) -> Answer:
    return Answer(ErrorCode.INVALID_REQUEST, message)


def acknowledge(
    window: Window,
    settings: ShareSettings,
    member: str,
    batches: Sequence[AcknowledgementBatch],
    now: InstantMs,
    *,
    durable_start: Offset,
    transaction: TransactionKey | None = None,
) -> Applied | Answer:
    """Apply all batches, or answer why none is applied. Acknowledgements of offsets below the
    durable start are ignored: these records never come again. Those that are below the window's
    start alone were given up, and a leader that takes over now may deliver them again.

    A transaction is refused both: somebody else has finished the record, and what the transaction
    made of it would be there twice.
    """
    if len(batches) == 1 and transaction is None:
        accepted = _accept_range(window, member, batches[0])
        if accepted is not None:
            return accepted
    refused = _too_many(window, settings, len(batches)) or malformed(batches)
    if refused is None and transaction is not None:
        refused = _not_transactional(batches)
    if refused is not None:
        return refused
    ignored_below = durable_start if transaction is None else Offset(0)
    runs = [run for batch in batches for run in _runs(batch, ignored_below)]
    for run in runs:
        refused = _refused(window, settings, member, run)
        if refused is not None:
            return refused
    applied = Applied([], [])
    for run in runs:
        _apply(window, settings, run, applied, now)
    if transaction is not None:
        for moved in applied.moved:
            assert moved.transition is not None, "it was moved just now"
            outcome, delivery_count, *_ = moved.transition
            moved.transition = Transition(ACQUIRED, delivery_count, pending=(transaction, outcome))
    return applied


def _accept_range(window: Window, member: str, batch: AcknowledgementBatch) -> Applied | None:
    """Apply the most frequent acknowledgement: a member accepts what it has acquired together, as a
    whole. None, and nothing has changed, if it is any other one.
    """
    first, last, types, delay_ms, is_unseen = batch
    if len(types) != 1 or types[0] != AcknowledgeType.ACCEPT or delay_ms or is_unseen:
        return None
    if not window.start <= first < window.end:
        return None
    one = window.at(first)
    if one.first != first or one.last != last or one.transition is not None:
        return None
    if one.lock is None or one.lock.member != member or one.lock.pending is not None:
        return None
    one.transition = Transition(NEXT_DELIVERY[ACQUIRED, Cause.ACCEPTED], one.count)
    return Applied([one], [])


def _too_many(window: Window, settings: ShareSettings, count: int) -> Answer | None:
    """INVALID_REQUEST for more batches than a member can have reasons for: those of two windows."""
    limit = 2 * max(settings.records_max, window.records)
    if count <= limit:
        return None
    return _invalid(f"{count} acknowledgement batches for one share-partition; at most {limit}")


def _not_transactional(batches: Sequence[AcknowledgementBatch]) -> Answer | None:
    for first, last, types, *_ in batches:
        if AcknowledgeType.RELEASE in types or AcknowledgeType.RENEW in types:
            return _invalid(
                f"batch {first}-{last}: a transaction can accept and reject records; it cannot"
                " release them or renew their locks"
            )
    return None


def _runs(batch: AcknowledgementBatch, start: Offset) -> list[_Run]:
    first, last, types, delay_ms, is_unseen = batch
    if last < start:
        return []
    if len(types) == 1:
        kind = AcknowledgeType(types[0])
        return [_Run(max(first, start), last, kind, delay_ms, is_unseen)]
    runs: list[_Run] = []
    offset = first
    for number, group in groupby(types):
        end = offset + sum(1 for _ in group)
        if end > start:
            run_first = max(offset, start)
            run_last = Offset(end - 1)
            kind = AcknowledgeType(number)
            runs.append(_Run(run_first, run_last, kind, delay_ms, is_unseen))
        offset = Offset(end)
    return runs


def _refused(window: Window, settings: ShareSettings, member: str, run: _Run) -> Answer | None:
    first, last, kind, *_ = run
    if last >= window.end:
        if not len(window):
            return _bad_state(first, last, _NOT_ACQUIRED)
        return _invalid(f"offsets {first}-{last}: none is acquired from {window.end} on")
    if kind is AcknowledgeType.RENEW and not settings.is_renew_enabled:
        return _bad_state(first, last, "share.renew.acknowledge.enable is false")
    if first < window.start:
        return _bad_state(first, min(last, Offset(window.start - 1)), _NOT_ACQUIRED)
    for one in window.over(first, last):
        if one.lock is None:
            return _bad_state(max(first, one.first), min(last, one.last), _NOT_ACQUIRED)
        if one.transition is not None:
            return _bad_state(max(first, one.first), min(last, one.last), _UNDER_WAY)
        if one.lock.pending is not None:
            return _bad_state(max(first, one.first), min(last, one.last), _PENDING)
        if one.lock.member != member:
            return _bad_state(max(first, one.first), min(last, one.last), _NOT_OWNER)
    return None


def _bad_state(first: Offset, last: Offset, why: str) -> Answer:
    return Answer(ErrorCode.INVALID_RECORD_STATE, f"offsets {first}-{last}: {why}")


def _apply(
    window: Window, settings: ShareSettings, run: _Run, applied: Applied, now: InstantMs
) -> None:
    pieces = window.carve(run.first, run.last)
    if run.type is AcknowledgeType.RENEW:
        applied.renewed.extend(pieces)
        return
    for piece in pieces:
        piece.transition = _transition(settings, run, piece, now)
    applied.moved.extend(pieces)


def _transition(settings: ShareSettings, run: _Run, piece: Range, now: InstantMs) -> Transition:
    delivery_count = piece.count
    match run.type:
        case AcknowledgeType.ACCEPT:
            cause = Cause.ACCEPTED
        case AcknowledgeType.GAP:
            cause = Cause.NO_RECORD
        case AcknowledgeType.REJECT:
            cause = settings.rejected
        case _ if run.is_unseen and piece.unseen < settings.unseen_max:
            state = NEXT_DELIVERY[ACQUIRED, Cause.RELEASED]
            return Transition(state, delivery_count - 1, is_unseen=True)
        case _ if delivery_count >= settings.deliveries_max:
            cause = settings.exhausted
        case _:
            delay_ms = settings.delay_ms(run.delay_ms, delivery_count)
            ready_at = InstantMs(now + delay_ms) if delay_ms else READY
            state = NEXT_DELIVERY[ACQUIRED, Cause.RELEASED]
            return Transition(state, delivery_count, ready_at)
    return Transition(NEXT_DELIVERY[ACQUIRED, cause], delivery_count)


def renew(window: Window, renewed: Sequence[Range], lock: Lock) -> None:
    """Let these ranges be held by another lock of the same member."""
    for one in renewed:
        hand_over(one, lock)
    for one in renewed:
        window.join(one)
