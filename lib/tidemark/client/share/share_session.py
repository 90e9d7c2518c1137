"""ShareSession: fetches of one member from one broker (KIP-932). Pure.

A broker remembers the partitions of a session, and releases what the member has acquired when the
session or its connection ends. Epoch 0 opens a session with all its partitions, and replaces an
earlier one. Each later request has the next epoch and only what changes. Epoch -1 ends it.
"""

from collections.abc import Iterable, Mapping
from enum import Enum, auto
from typing import Final, NamedTuple

from tidemark.client.share.ack_batches import AckBatch, Decisions, batches_of
from tidemark.model.errors import ErrorCode

OPENING_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EPOCH_MAX: Final = 2**31 - 1

SESSION_LOST: Final = frozenset(
    {
        ErrorCode.SHARE_SESSION_NOT_FOUND,
        ErrorCode.INVALID_SHARE_SESSION_EPOCH,
        ErrorCode.SHARE_SESSION_LIMIT_REACHED,
    }
)
"""Errors after which the broker has no session of this member."""

SharePartition = tuple[bytes, int]
"""Topic id and partition."""
Acknowledgements = Mapping[SharePartition, Decisions]
"""Acknowledgements by partition."""


class SessionRequest(NamedTuple):
    """Epoch, partitions and acknowledgements of one request."""

    epoch: int
    partitions: Mapping[SharePartition, tuple[AckBatch, ...]]
    """Partitions to name, with their acknowledgements."""
    forgotten: tuple[SharePartition, ...] = ()


class Verdict(Enum):
    """Effect of an answer on the session."""

    KEPT = auto()
    LOST = auto()


class ShareSession:
    """Session with one broker. One request at a time: ``fetch`` or ``acknowledge``, then its
    answer.
    """

    def __init__(self) -> None:
        self.epoch = OPENING_EPOCH
        self._known: frozenset[SharePartition] = frozenset()
        """Partitions that the broker has in the session."""
        self._asked: frozenset[SharePartition] | None = None
        """Partitions in the session once the request under way is answered."""

    @property
    def is_open(self) -> bool:
        """True if the broker has the session, so that acknowledgements can be sent."""
        return self.epoch != OPENING_EPOCH

    def fetch(
        self, wanted: Iterable[SharePartition], acknowledgements: Acknowledgements
    ) -> SessionRequest:
        """Return the request that fetches from ``wanted``, with acknowledgements."""
        assert self._asked is None, "one request at a time"
        assert self.is_open or not acknowledgements, "nothing is acquired before a session is open"
        after = frozenset(wanted)
        self._asked = after
        named: dict[SharePartition, tuple[AckBatch, ...]] = dict.fromkeys(
            sorted(after - self._known), ()
        )
        return SessionRequest(
            self.epoch,
            named | _batches(acknowledgements),
            tuple(sorted(self._known - after)),
        )

    def acknowledge(self, acknowledgements: Acknowledgements) -> SessionRequest:
        """Return the request that only acknowledges."""
        assert self._asked is None, "one request at a time"
        assert self.is_open, "nothing is acquired before a session is open"
        self._asked = self._known
        return SessionRequest(self.epoch, _batches(acknowledgements))

    def close(self, acknowledgements: Acknowledgements) -> SessionRequest:
        """Return the request that ends the session; the broker releases what is left."""
        assert self.is_open, "there is no session to end"
        return SessionRequest(FINAL_EPOCH, _batches(acknowledgements))

    def on_answer(self, error_code: int) -> Verdict:
        """Apply the answer's error for the whole request. Records acquired in a session that is
        lost are released by the broker.
        """
        assert self._asked is not None, "nothing was asked"
        asked, self._asked = self._asked, None
        if error_code in SESSION_LOST:
            return self.on_lost()
        if error_code == ErrorCode.NONE:
            self._known = asked
            self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1
            return Verdict.KEPT
        return self.on_lost()

    def on_lost(self) -> Verdict:
        """Open another session with the next request: an answer or the connection is lost."""
        self.epoch = OPENING_EPOCH
        self._known, self._asked = frozenset(), None
        return Verdict.LOST


def _batches(
    acknowledgements: Acknowledgements,
) -> dict[SharePartition, tuple[AckBatch, ...]]:
    return {
        partition: tuple(batches_of(decisions))
        for partition, decisions in sorted(acknowledgements.items())
        if decisions
    }
