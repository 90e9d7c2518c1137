"""Deliveries: the records that a member has acquired, and their acknowledgements. Pure.

    acquired --hand_out--> held --acknowledge--> decided --take--> sent --settle--> done
                            ^                       ^                |
                            |                       +--- again ------+
                            +------------ renewed -------------------+

An acknowledgement that the coordinator cannot store for now is sent again. One that is refused is
not: the record's lock was lost, and the record is delivered again.
"""

from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from tidemark.client.share.ack_batches import (
    WITHOUT_RECORD,
    AcknowledgeType,
    Decision,
    Decisions,
)
from tidemark.model.errors import ErrorCode
from tidemark.model.topics import TopicPartition

AGAIN: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.LEADER_NOT_AVAILABLE,
    }
)
"""Errors after which an acknowledgement is sent again: nothing was stored, the lock holds."""


class ShareRecord(NamedTuple):
    """A record of a share group. ``delivery_count`` is 1 at its first delivery."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    delivery_count: int


class NotHeldError(Exception):
    """The record is not, or no longer, held by this consumer."""


class PartitionDeliveries:
    """Deliveries of one partition of one topic id."""

    def __init__(self, topic_id: bytes, *, takes_own_fields: bool = False) -> None:
        self.topic_id = topic_id
        self.takes_own_fields = takes_own_fields
        """The broker takes delays, and that records were never handed out."""
        self.held: dict[int, ShareRecord] = {}
        """Records of the application, by offset, until their acknowledgement is answered."""
        self._decided: dict[int, Decision] = {}
        """Acknowledgements to send, by offset."""
        self._sent: dict[int, Decision] = {}
        """Acknowledgements without an answer."""
        self._renewed: set[int] = set()
        """Offsets in ``held`` whose lock was renewed: polls do not wait for them."""

    @property
    def has_decided(self) -> bool:
        """True if acknowledgements are to be sent."""
        return bool(self._decided)

    @property
    def has_renewals(self) -> bool:
        """True if renewals are to be sent, for which a request must not fetch."""
        return any(map(_is_renewal, self._decided.values()))

    def hand_out(self, records: Iterable[ShareRecord]) -> None:
        """Note records that the application receives now."""
        for record in records:
            self.held[record.offset] = record
            self._renewed.discard(record.offset)

    def skip(self, offsets: Iterable[int], decision: Decision = WITHOUT_RECORD) -> None:
        """Acknowledge acquired offsets that the application does not receive."""
        self._decided.update(dict.fromkeys(offsets, decision))

    def acknowledge(self, offset: int, decision: Decision) -> None:
        """Decide the outcome of one record; a later decision replaces one that is not sent yet.

        Raises NotHeldError.
        """
        if offset not in self.held or not self._is_open(offset):
            raise NotHeldError
        self._decided[offset] = decision

    def decide_all(self, decision: Decision) -> None:
        """Decide the outcome of all held records that have none."""
        for offset in self.held:
            if self._is_open(offset):
                self._decided.setdefault(offset, decision)

    def undecided(self) -> Iterator[ShareRecord]:
        """Yield held records that the application has to acknowledge before the next poll."""
        done = self._decided.keys() | self._sent.keys() | self._renewed
        return (record for offset, record in self.held.items() if offset not in done)

    def take(self) -> dict[int, Decision]:
        """Return the acknowledgements to send now."""
        taken, self._decided = self._decided, {}
        self._sent.update(taken)
        return taken

    def take_out(self, offset: int, decision: Decision) -> None:
        """Note that one record is acknowledged elsewhere, within a transaction; ``settle`` or
        ``give_back`` follows. Raises NotHeldError.
        """
        if offset not in self.held or offset in self._decided or not self._is_open(offset):
            raise NotHeldError
        self._sent[offset] = decision

    def give_back(self, offsets: Iterable[int]) -> None:
        """Hold records again whose acknowledgement elsewhere has failed."""
        for offset in offsets:
            self._sent.pop(offset, None)

    def drop_renewals(self) -> None:
        """Send no renewals: the session ends, and with it every lock."""
        self._decided = {at: one for at, one in self._decided.items() if not _is_renewal(one)}

    def settle(self, taken: Decisions, error_code: int) -> bool:
        """Apply the answer to acknowledgements; return True if they are to be sent again."""
        for offset in taken:
            self._sent.pop(offset, None)
        if error_code in AGAIN:
            self._decided = {**taken, **self._decided}
            return True
        for offset, decision in taken.items():
            is_renewed = _is_renewal(decision) and error_code == ErrorCode.NONE
            if is_renewed and offset in self.held:
                self._renewed.add(offset)
            else:
                self.held.pop(offset, None)
                self._decided.pop(offset, None)
                self._renewed.discard(offset)
        return False

    def lose(self) -> None:
        """Forget everything: the session that held the locks has ended."""
        self.held.clear()
        self._decided.clear()
        self._sent.clear()
        self._renewed.clear()

    def _is_open(self, offset: int) -> bool:
        """True if a record may be acknowledged: no final acknowledgement is without an answer."""
        sent = self._sent.get(offset)
        return sent is None or _is_renewal(sent)

    def check(self) -> None:
        """Assert every invariant."""
        assert self._renewed <= self.held.keys(), (self._renewed, self.held.keys())
        both = self._decided.keys() & self._sent.keys()
        assert all(_is_renewal(self._sent[one]) for one in both), both


def _is_renewal(decision: Decision) -> bool:
    return decision.kind == AcknowledgeType.RENEW


class Deliveries:
    """Deliveries of all partitions that a member ever read: records may be acknowledged after their
    partition is assigned to other members.
    """

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, PartitionDeliveries] = {}

    def begin(
        self, at: TopicPartition, topic_id: bytes, *, takes_own_fields: bool = False
    ) -> PartitionDeliveries:
        """Return new deliveries of a partition, in another session or from another leader. Earlier
        ones can no longer be acknowledged.
        """
        begun = PartitionDeliveries(topic_id, takes_own_fields=takes_own_fields)
        self.partitions[at] = begun
        return begun

    def of(self, record: ShareRecord) -> PartitionDeliveries:
        """Return the deliveries of a record's partition. Raises NotHeldError."""
        known = self.partitions.get(TopicPartition(record.topic, record.partition))
        if known is None:
            raise NotHeldError
        return known

    def decide_all(self, decision: Decision) -> None:
        """Decide the outcome of every held record that has none."""
        for one in self.partitions.values():
            one.decide_all(decision)

    def undecided(self) -> list[ShareRecord]:
        """Return the records that the application has to acknowledge before the next poll."""
        return [record for one in self.partitions.values() for record in one.undecided()]
