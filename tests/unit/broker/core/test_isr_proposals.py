from broker.core.isr import IsrProposal
from broker.core.isr_proposals import BACKOFF, IsrProposals
from tidemark.model.backoff import EVEN
from tidemark.model.ids import (
    BrokerEpoch,
    BrokerId,
    InstantMs,
    LeaderEpoch,
    PartitionEpoch,
    TopicId,
)

NOW = InstantMs(1_000)


def proposal(partition: int, *members: int) -> IsrProposal:
    isr = tuple((BrokerId(one), BrokerEpoch(10)) for one in members)
    return IsrProposal(TopicId(bytes(16)), partition, LeaderEpoch(5), PartitionEpoch(1), isr)


def test_one_request_is_in_flight_and_takes_all_that_is_queued() -> None:
    queue = IsrProposals()
    queue.add(proposal(0, 1))
    queue.add(proposal(1, 1))
    assert queue.next_request(NOW) == (proposal(0, 1), proposal(1, 1))
    queue.add(proposal(2, 1))
    assert queue.next_request(NOW) is None
    queue.answered()
    assert queue.next_request(NOW) == (proposal(2, 1),)


def test_the_latest_proposal_of_a_partition_is_sent() -> None:
    queue = IsrProposals()
    queue.add(proposal(0, 1))
    queue.add(proposal(0, 1, 2))
    assert queue.next_request(NOW) == (proposal(0, 1, 2),)


def test_without_an_answer_it_is_asked_again_later_and_later() -> None:
    queue, waits = IsrProposals(), []
    queue.add(proposal(0, 1))
    now = NOW
    for _ in range(7):
        assert queue.next_request(now) is not None
        queue.failed(now, EVEN)
        due = queue.next_try(now)
        assert due is not None
        waits.append(due - now)
        now = due
    assert waits[0] == BACKOFF.first_ms
    assert waits[-1] == BACKOFF.max_ms


def test_what_is_newer_than_a_failed_request_replaces_it() -> None:
    queue = IsrProposals()
    queue.add(proposal(0, 1))
    queue.next_request(NOW)
    queue.add(proposal(0, 1, 2))
    queue.failed(NOW, EVEN)
    assert queue.next_request(InstantMs(NOW + round(BACKOFF.max_ms))) == (proposal(0, 1, 2),)
