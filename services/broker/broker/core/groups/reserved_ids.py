"""Group ids that are reserved for share groups, and the requests that wait for a look-up."""

from typing import Final, NamedTuple

from tidemark.codec.group_records import ShareGroupMetadataRecord, ShareGroupMetadataValue
from tidemark.model.ids import InstantMs

from broker.core.groups.requests import GroupRequest

RESERVATION_MIN_MS: Final = 30_000
"""Time that an id stays reserved at least. A share-coordinator creates the group at most 10 s after
it has reserved the id, or reserves it again.
"""
FOUND_FOR_MS: Final = 5_000
"""Time for which a share group that was found counts as existing, without another look-up."""
PARKED_MAX: Final = 1_000
"""Requests of one shard that may wait for look-ups."""


class Parked(NamedTuple):
    """A request that may be decided once it is known whether the share group exists."""

    request_id: int
    request: GroupRequest


class ReservedIds:
    """Reservations by group id. Only the owner epochs are logged, in the ``epoch`` of Kafka's
    ShareGroupMetadata record; the times begin again with each load of the log.
    """

    def __init__(self) -> None:
        self._owner_epochs: dict[str, int] = {}
        self._reserved_at: dict[str, InstantMs] = {}
        self._found_at: dict[str, InstantMs] = {}
        self._parked: dict[str, list[Parked]] = {}
        self._parked_count = 0

    def __contains__(self, group_id: str) -> bool:
        return group_id in self._owner_epochs

    def replay(self, record: ShareGroupMetadataRecord) -> None:
        """Apply a record of the log."""
        if record.value is not None:
            self._owner_epochs[record.group_id] = record.value.epoch
            return
        self._owner_epochs.pop(record.group_id, None)
        self._reserved_at.pop(record.group_id, None)
        self._found_at.pop(record.group_id, None)

    def loaded(self, now: InstantMs) -> None:
        """Treat every reservation in the log as made now."""
        self._reserved_at = dict.fromkeys(self._owner_epochs, now)

    def reserve(
        self, group_id: str, owner_epoch: int, now: InstantMs
    ) -> tuple[ShareGroupMetadataRecord, ...]:
        """Reserve an id, and return the records for it: none if nothing changes in the log."""
        self._reserved_at[group_id] = now
        if owner_epoch <= self._owner_epochs.get(group_id, -1):
            return ()
        value = ShareGroupMetadataValue(epoch=owner_epoch)
        return (ShareGroupMetadataRecord(group_id, value),)

    def release(self, group_id: str, owner_epoch: int) -> tuple[ShareGroupMetadataRecord, ...]:
        """Return the records that release an id; none if a newer owner has reserved it, or
        nobody.
        """
        reserved_by = self._owner_epochs.get(group_id)
        if reserved_by is None or owner_epoch < reserved_by:
            return ()
        return (ShareGroupMetadataRecord(group_id, None),)

    def may_be_abandoned(self, group_id: str, now: InstantMs) -> bool:
        """True if the reservation is so old that its group exists, or never will."""
        return now - self._reserved_at[group_id] >= RESERVATION_MIN_MS

    def was_found(self, group_id: str, now: InstantMs) -> bool:
        """True if a look-up has found the share group a short while ago."""
        found_at = self._found_at.get(group_id)
        return found_at is not None and now - found_at < FOUND_FOR_MS

    def found(self, group_id: str, now: InstantMs) -> None:
        """Note that a look-up has found the share group."""
        self._found_at[group_id] = now

    # -- parked requests

    @property
    def is_full(self) -> bool:
        """True if no further request may be parked."""
        return self._parked_count >= PARKED_MAX

    def park(self, request_id: int, request: GroupRequest) -> bool:
        """Park a request; True if a look-up of its group has to begin."""
        assert not self.is_full, "more requests are parked than may be"
        is_first = request.group_id not in self._parked
        self._parked.setdefault(request.group_id, []).append(Parked(request_id, request))
        self._parked_count += 1
        return is_first

    def take_parked(self, group_id: str) -> list[Parked]:
        """Remove and return the parked requests of a group, in order."""
        taken = self._parked.pop(group_id, [])
        self._parked_count -= len(taken)
        return taken

    def check(self) -> None:
        """Assert every invariant."""
        assert self._reserved_at.keys() == self._owner_epochs.keys()
        assert self._found_at.keys() <= self._owner_epochs.keys()
        assert self._parked_count == sum(map(len, self._parked.values()))
