"""The rules for dead letters reject histories made by hand, and accept similar ones that keep
them.
"""

from collections.abc import Callable

import pytest
from broker.core.share.letter_copies import CopyOrder, copies
from tidemark.codec.control_record import EndTxnMarker, build_marker
from tidemark.codec.record_batch import read_header
from tidemark.codec.records import build_batch
from tidemark.model.ids import Offset, ProducerEpoch, ProducerId
from tidemark.model.share_state import DeliveryState, TransactionKey
from tidemark.model.topics import TopicPartition

from sim.checkers import BrokenError
from sim.cluster.share_letters import ONCE, TOGETHER, Letters

AVAILABLE, ARCHIVING = DeliveryState.AVAILABLE, DeliveryState.ARCHIVING
ARCHIVED = DeliveryState.ARCHIVED
TOPIC_ID = bytes(16)
AT = (TOPIC_ID, 3)


class Told:
    """Offset 3 is a letter in state epoch 1, and is copied, archived and passed."""

    def __init__(self) -> None:
        self.letters = Letters(is_copied=True)
        self.letters.is_kept(AT, 1, AVAILABLE, ARCHIVING)
        self.copies(3)
        self.ends(commits=False)
        self.copies(3)
        self.ends(commits=True)
        self.letters.archives(AT)
        self.letters.is_passed(AT, 1, 1, ARCHIVED)

    def copies(self, offset: int, producer: int = 7) -> None:
        order = CopyOrder(
            TopicPartition("orders", 0),
            "g",
            [(Offset(offset), Offset(offset), 1)],
            deliveries_max=3,
            has_record=False,
            producer=TransactionKey(ProducerId(producer), ProducerEpoch(0)),
            timestamp=0,
            batch_bytes_max=1_000,
        )
        stored = build_batch([(0, None, b"v", ())], base_offset=offset)
        (batch,) = copies([stored], order).batches
        self.takes(batch)

    def ends(self, *, commits: bool, producer: int = 7) -> None:
        marker = EndTxnMarker(commits, 0)
        self.takes(build_marker(marker, producer_id=producer, producer_epoch=0, timestamp=0))

    def takes(self, batch: bytes) -> None:
        self.letters.takes(memoryview(batch), read_header(batch), {"orders": TOPIC_ID})


def copied_twice(told: Told) -> None:
    told.copies(3, producer=8)
    told.ends(commits=True, producer=8)


def copied_without_a_reason(told: Told) -> None:
    told.copies(4)
    told.ends(commits=True)


def never_copied(told: Told) -> None:
    told.letters.is_kept((TOPIC_ID, 4), 1, AVAILABLE, ARCHIVING)
    told.letters.archives((TOPIC_ID, 4))
    told.letters.end()


def copied_and_not_archived(told: Told) -> None:
    told.letters.is_kept((TOPIC_ID, 4), 1, AVAILABLE, ARCHIVING)
    told.copies(4)
    told.ends(commits=True)
    told.letters.end()


def archived_by_itself(told: Told) -> None:
    told.letters.is_kept((TOPIC_ID, 4), 1, ARCHIVING, ARCHIVED)


def passed_before_the_copy(told: Told) -> None:
    told.letters.is_passed((TOPIC_ID, 4), 1, 1, ARCHIVING)


@pytest.mark.parametrize(
    ("story", "promise"),
    [
        (copied_twice, ONCE),
        (copied_without_a_reason, ONCE),
        (never_copied, ONCE),
        (copied_and_not_archived, ONCE),
        (archived_by_itself, TOGETHER),
        (passed_before_the_copy, TOGETHER),
    ],
)
def test_a_history_that_breaks_a_rule_is_rejected(
    story: Callable[[Told], None], promise: str
) -> None:
    told = Told()
    with pytest.raises(BrokenError) as broken:
        story(told)
    assert broken.value.invariant == promise


def test_a_letter_that_is_aborted_and_copied_again_keeps_the_rules() -> None:
    Told().letters.end()


def test_an_offset_may_be_a_letter_again_after_a_reset() -> None:
    told = Told()
    told.letters.is_kept(AT, 2, AVAILABLE, ARCHIVING)
    copied_twice(told)
    told.letters.archives(AT)
    told.letters.end()


def test_a_record_that_was_delivered_again_is_no_letter() -> None:
    told = Told()
    told.letters.is_kept((TOPIC_ID, 4), 1, AVAILABLE, ARCHIVING)
    told.letters.is_delivered((TOPIC_ID, 4), 1, 2)
    told.letters.is_passed((TOPIC_ID, 4), 1, 1, ARCHIVING)
    told.letters.end()


def test_without_a_queue_nothing_is_expected() -> None:
    letters = Letters()
    letters.is_kept(AT, 1, ARCHIVING, ARCHIVED)
    letters.is_passed(AT, 1, 1, ARCHIVING)
    letters.end()
