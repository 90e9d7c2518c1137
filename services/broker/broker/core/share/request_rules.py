"""Checks of ShareFetch and ShareAcknowledge requests that need no state."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from tidemark.model.errors import ErrorCode

from broker.core.share.acknowledgement import AcknowledgementBatch, AcknowledgeType, Answer
from broker.core.share.acquisition import AcquireMode
from broker.core.share.sessions import SessionRefusal

NAME_CHARACTERS_MAX: Final = 1_024
"""Bound of group and member ids here: sessions and locks keep them in memory."""
ACKNOWLEDGEMENTS_MAX: Final = 20_000
"""Acknowledge types in one request: those of two of the greatest windows. All are applied in one
turn of the event loop. The window of a share-partition may have a lower bound.
"""
RENEW_FROM: Final = 2
"""First version of both requests that may renew locks."""


_MODES: Final = {mode.value: mode for mode in AcquireMode}


class FetchTerms(NamedTuple):
    """Terms of a ShareFetch request."""

    wait_ms_max: int
    bytes_min: int
    bytes_max: int
    records_max: int
    batch_records_max: int
    acquire_mode: int
    renews: bool
    """``IsRenewAck``: the request renews locks, and fetches nothing."""

    @property
    def fetches_nothing(self) -> bool:
        """True if no limit leaves room for a record."""
        limits = (self.wait_ms_max, self.bytes_min, self.bytes_max, self.records_max)
        return not any(limits)

    @property
    def mode(self) -> AcquireMode:
        """Acquire mode; valid once the request was checked."""
        return _MODES[self.acquire_mode]


def refused_ids(group_id: str | None, member_id: str | None) -> SessionRefusal | None:
    """Return the error of a request whose group or member id is empty or too long, else None."""
    for name, text in (("group id", group_id), ("member id", member_id)):
        if not text:
            return _invalid(f"the {name} is empty")
        if len(text) > NAME_CHARACTERS_MAX:
            return _invalid(
                f"the {name} has {len(text)} characters, more than {NAME_CHARACTERS_MAX}"
            )
    return None


def refused_terms(terms: FetchTerms) -> SessionRefusal | None:
    """Return the error of a ShareFetch request whose terms contradict, else None."""
    if terms.acquire_mode not in (0, 1):
        return _invalid(
            f"there is no share acquire mode {terms.acquire_mode}: 0 is batch optimized, 1 record"
            " limit"
        )
    if terms.renews and not terms.fetches_nothing:
        return _invalid(
            "a request that renews locks fetches nothing: its MaxWaitMs, MinBytes, MaxBytes and"
            " MaxRecords are 0"
        )
    if not terms.renews and terms.bytes_max > 0 and terms.records_max <= 0:
        return _invalid(f"MaxRecords is {terms.records_max}; set it to 1 or more")
    return None


def refused_count(count: int, before: int) -> Answer | None:
    """Return the error of a share-partition with ``count`` acknowledge types, in a request that has
    ``before`` of others before it, else None.
    """
    if before + count <= ACKNOWLEDGEMENTS_MAX:
        return None
    message = (
        f"more than {ACKNOWLEDGEMENTS_MAX} acknowledge types in one request; send the rest in the"
        " next one"
    )
    return Answer(ErrorCode.INVALID_REQUEST, message)


def refused_types(
    batches: Sequence[AcknowledgementBatch], version: int, *, renews: bool
) -> Answer | None:
    """Return the error of renewals that the request's version lacks, or that the request does not
    announce (``renews``: its ``IsRenewAck``), else None.
    """
    if renews or not any(AcknowledgeType.RENEW in batch.types for batch in batches):
        return None
    if version < RENEW_FROM:
        why = f"version {version} of the request cannot renew locks; {RENEW_FROM} can"
    else:
        why = "a request that renews locks sets IsRenewAck"
    return Answer(ErrorCode.INVALID_REQUEST, why)


def _invalid(message: str) -> SessionRefusal:
    return SessionRefusal(ErrorCode.INVALID_REQUEST, message)
