"""Deliveries: the records that a member has acquired, and their acknowledgements. Pure.

    acquired --hand_out--> held --acknowledge--> decided --take--> sent --settle--> done
                            ^                       ^                |
                            |                       +--- again ------+
                            +------------ renewed -------------------+

An acknowledgement that the coordinator cannot store for now is sent again. One that is refused is
not: the record's lock was lost, and the record is delivered again.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, NamedTuple

from tidemark.client.share.ack_batches import GAP, AcknowledgeType
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

    def __init__(self, topic_id: bytes) -> None:
        self.topic_id = topic_id
        self.held: dict[int, ShareRecord] = {}
        """Records of the application, by offset, until their acknowledgement is answered."""
        self._decided: dict[int, int] = {}
        """Acknowledgements to send: types by offset."""
        self._sent: dict[int, int] = {}
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
        return AcknowledgeType.RENEW in self._decided.values()

    def hand_out(self, records: Iterable[ShareRecord]) -> None:
        """Note records that the application receives now."""
        for record in records:
            self.held[record.offset] = record
            self._renewed.discard(record.offset)

    def skip(self, offsets: Iterable[int], kind: int = GAP) -> None:
        """Acknowledge acquired offsets that the application does not receive."""
        self._decided.update(dict.fromkeys(offsets, kind))

    def acknowledge(self, offset: int, kind: AcknowledgeType) -> None:
        """Decide the outcome of one record; a later decision replaces one that is not sent yet.

        Raises NotHeldError.
        """
        if offset not in self.held or not self._is_open(offset):
            raise NotHeldError
        self._decided[offset] = kind

    def decide_all(self, kind: AcknowledgeType) -> None:
        """Decide the outcome of all held records that have none."""
        for offset in self.held:
            if self._is_open(offset):
                self._decided.setdefault(offset, kind)

    def undecided(self) -> Iterator[ShareRecord]:
        """Yield held records that the application has to acknowledge before the next poll."""
        done = self._decided.keys() | self._sent.keys() | self._renewed
        return (record for offset, record in self.held.items() if offset not in done)

    def take(self) -> dict[int, int]:
        """Return the acknowledgements to send now."""
        taken, self._decided = self._decided, {}
        self._sent.update(taken)
        return taken

    def take_out(self, offset: int, kind: AcknowledgeType) -> None:
        """Note that one record is acknowledged elsewhere, within a transaction; ``settle`` or
        ``give_back`` follows. Raises NotHeldError.
        """
        if offset not in self.held or offset in self._decided or not self._is_open(offset):
            raise NotHeldError
        self._sent[offset] = kind

    def give_back(self, offsets: Iterable[int]) -> None:
        """Hold records again whose acknowledgement elsewhere has failed."""
        for offset in offsets:
            self._sent.pop(offset, None)

    def drop_renewals(self) -> None:
        """Send no renewals: the session ends, and with it every lock."""
        renewal = AcknowledgeType.RENEW
        self._decided = {one: kind for one, kind in self._decided.items() if kind != renewal}

    def settle(self, taken: Mapping[int, int], error_code: int) -> bool:
        """Apply the answer to acknowledgements; return True if they are to be sent again."""
        for offset in taken:
            self._sent.pop(offset, None)
        if error_code in AGAIN:
            self._decided = {**taken, **self._decided}
            return True
        for offset, kind in taken.items():
            is_renewed = kind == AcknowledgeType.RENEW and error_code == ErrorCode.NONE
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
        return self._sent.get(offset, AcknowledgeType.RENEW) == AcknowledgeType.RENEW

    def check(self) -> None:
        """Assert every invariant."""
        assert self._renewed <= self.held.keys(), (self._renewed, self.held.keys())
        both = self._decided.keys() & self._sent.keys()
        assert all(self._sent[one] == AcknowledgeType.RENEW for one in both), both


class Deliveries:
    """Deliveries of all partitions that a member ever read: records may be acknowledged after their
    partition is assigned to other members.
    """

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, PartitionDeliveries] = {}

    def begin(self, at: TopicPartition, topic_id: bytes) -> PartitionDeliveries:
        """Return new deliveries of a partition, in another session or from another leader. Earlier
        ones can no longer be acknowledged.
        """
        begun = self.partitions[at] = PartitionDeliveries(topic_id)
        return begun

    def acknowledge(self, record: ShareRecord, kind: AcknowledgeType) -> None:
        """Decide the outcome of one record. Raises NotHeldError."""
        known = self.partitions.get(TopicPartition(record.topic, record.partition))
        if known is None:
            raise NotHeldError
        known.acknowledge(record.offset, kind)

    def decide_all(self, kind: AcknowledgeType) -> None:
        """Decide the outcome of every held record that has none."""
        for one in self.partitions.values():
            one.decide_all(kind)

    def undecided(self) -> list[ShareRecord]:
        """Return the records that the application has to acknowledge before the next poll."""
        return [record for one in self.partitions.values() for record in one.undecided()]
