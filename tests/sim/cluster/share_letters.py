"""Dead letters of a share group, and their copies in the queue as readers of committed records find
them.
"""

from collections import Counter
from dataclasses import dataclass, field
from typing import Final

from broker.core.share.letter_copies import OFFSET, TOPIC
from tidemark.codec.control_record import EndTxnMarker, read_control
from tidemark.codec.record_batch import BatchHeader
from tidemark.codec.records import read_records
from tidemark.model.share_state import DeliveryState

from sim.checkers import require

QUEUE: Final = "dlq.lost"
At = tuple[bytes, int]
"""Topic id and offset: every topic has one partition."""
ONCE: Final = "each dead letter exactly once"
TOGETHER: Final = "a dead letter is archived together with its copy"


@dataclass
class Letters:
    """Letters of one group. A reset begins its states again: an offset may be a letter in several
    state epochs.
    """

    is_copied: bool = False
    """True if the group names a queue."""
    waiting: dict[At, set[int]] = field(default_factory=dict)
    """State epochs in which an offset became a letter, as the state's log has it."""
    delivered: dict[tuple[At, int], int] = field(default_factory=dict)
    """Count of the last delivery, by offset and state epoch."""
    archived: Counter[At] = field(default_factory=Counter)
    """Number of committed transactions that archived an offset."""
    copies: Counter[At] = field(default_factory=Counter)
    """Number of committed copies."""
    _open: dict[int, list[At]] = field(default_factory=dict)
    """Copies of open transactions, by producer id."""

    # -- the state's log

    def is_kept(
        self, at: At, state_epoch: int, before: DeliveryState, state: DeliveryState
    ) -> None:
        """Check a state that is written outside of transactions."""
        if not self.is_copied:
            return
        if state is DeliveryState.ARCHIVING:
            self.waiting.setdefault(at, set()).add(state_epoch)
        is_moved = before is DeliveryState.ARCHIVING and state is DeliveryState.ARCHIVED
        require(not is_moved, TOGETHER, f"offset {at[1]}: archived without a transaction")

    def is_delivered(self, at: At, state_epoch: int, count: int) -> None:
        """Record a delivery. A rejection whose write was not answered is in the log, and the record
        may be delivered again.
        """
        self.delivered[at, state_epoch] = count

    def is_passed(self, at: At, state_epoch: int, count: int, state: DeliveryState) -> None:
        """Check an offset that the start has passed."""
        is_waiting = self.is_copied and state is DeliveryState.ARCHIVING
        require(
            not is_waiting or self.delivered.get((at, state_epoch), 0) > count,
            TOGETHER,
            f"offset {at[1]}: the start has passed it",
        )

    def archives(self, at: At) -> None:
        """Record a committed transaction that archives a letter."""
        self.archived[at] += 1

    # -- the queue

    def takes(self, batch: memoryview, header: BatchHeader, topics: dict[str, bytes]) -> None:
        """Record a committed batch of the queue, in the order of its log."""
        if header.is_control:
            marker = read_control(batch, header)
            if isinstance(marker, EndTxnMarker):
                ended = self._open.pop(header.producer_id, [])
                self._are_committed(ended if marker.commits else [])
            return
        found = []
        for record in read_records(batch, header):
            headers = dict(record.headers)
            topic, offset = headers[TOPIC], headers[OFFSET]
            assert topic is not None, "a copy names its topic"
            assert offset is not None, "a copy names its offset"
            found.append((topics[topic.decode()], int(offset)))
        if header.is_transactional:
            self._open.setdefault(header.producer_id, []).extend(found)
        else:
            self._are_committed(found)

    def _are_committed(self, found: list[At]) -> None:
        for at in found:
            self.copies[at] += 1
            epochs = self.waiting.get(at, set())
            require(
                self.copies[at] <= len(epochs),
                ONCE,
                f"offset {at[1]}: {self.copies[at]} copies, a letter in state epochs {epochs}",
            )

    # -- the end

    @property
    def is_complete(self) -> bool:
        """True if the queue has what was archived."""
        return self.copies == self.archived

    def end(self) -> None:
        """Check that no copy is missing."""
        missing = {at[1]: count for at, count in (self.archived - self.copies).items()}
        more = {at[1]: count for at, count in (self.copies - self.archived).items()}
        require(self.is_complete, ONCE, f"missing {missing}, archived less often {more}")
