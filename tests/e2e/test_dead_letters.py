"""Dead letters of share groups at real processes."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from e2e.clusters import Cluster, started_cluster
from e2e.dead_letters import BROKER, ENABLED, QUICK, Letters
from e2e.share_wire import ACCEPT, REJECT, RELEASE
from tidemark.model.errors import ErrorCode
from waiting import wait_for

pytestmark = [pytest.mark.e2e]


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A broker, a txn-coordinator and a share-coordinator."""
    running = started_cluster(
        tmp_path_factory.mktemp("dead-letters"),
        txn_coordinators=1,
        share_coordinators=1,
        overrides={"broker": BROKER, "share-coordinator": QUICK},
    )
    yield running
    running.end()


@pytest.mark.feature("V02", "Y07")
def test_a_rejected_record_is_copied_once_and_archived(cluster: Cluster) -> None:
    letters = Letters(cluster)
    member = letters.member()
    assert member.take(0) == [(0, 9, 1)]
    letters.reject(member, (2, 4))
    letters.wait_for_letters([2, 3, 4])
    (first, *_) = letters.committed()
    assert (first.key(), first.value()) == (b"k2", b"v2")
    assert dict(first.headers() or []) == {
        "own": b"2",
        "__dlq.errors.topic": letters.topic.encode(),
        "__dlq.errors.partition": b"0",
        "__dlq.errors.offset": b"2",
        "__dlq.errors.group": letters.group.encode(),
        "__dlq.errors.delivery.count": b"1",
        "__dlq.errors.message": b"Offset rejected by client.",
    }
    letters.end()


@pytest.mark.feature("V02")
def test_letters_are_committed_by_brokers_that_do_not_verify_transactions(
    tmp_path: Path,
) -> None:
    unverified = {"transaction.partition.verification.enable": False}
    running = started_cluster(
        tmp_path,
        txn_coordinators=1,
        share_coordinators=1,
        overrides={"broker": BROKER | unverified, "share-coordinator": QUICK},
    )
    try:
        letters = Letters(running)
        member = letters.member()
        assert member.take(0) == [(0, 9, 1)]
        letters.reject(member, (2, 4))
        letters.wait_for_letters([2, 3, 4])
        letters.end()
    finally:
        running.end()


def test_a_record_that_is_delivered_too_often_is_copied_without_its_content(
    cluster: Cluster,
) -> None:
    letters = Letters(cluster, records=2, has_record=False)
    letters.configure(share_delivery_count_limit="2")
    member = letters.member()
    assert member.take(0) == [(0, 1, 1)]
    assert member.acknowledge((0, 1, RELEASE)) is ErrorCode.NONE
    assert member.take() == [(0, 1, 2)]
    assert member.acknowledge((0, 1, RELEASE)) is ErrorCode.NONE
    letters.wait_for_letters([0, 1])
    (first, *_) = letters.committed()
    headers = dict(first.headers() or [])
    assert (first.key(), first.value(), "own" in headers) == (None, None, False)
    assert headers["__dlq.errors.delivery.count"] == b"2"
    assert headers["__dlq.errors.message"] == b"Delivery count limit reached."
    letters.end()


@pytest.mark.feature("V02")
@pytest.mark.parametrize(
    ("queue", "words"),
    [
        (None, "there is no topic"),
        ({}, "needs the configuration errors.deadletterqueue.group.enable=true"),
        (ENABLED | {"cleanup.policy": "compact"}, "is compacted"),
        (ENABLED | {"max.message.bytes": "100"}, "is larger than the queue allows"),
    ],
)
def test_letters_wait_for_a_queue_that_cannot_be_written_and_nothing_else_does(
    cluster: Cluster, queue: dict[str, str] | None, words: str
) -> None:
    letters = Letters(cluster, queue=queue)
    member = letters.member()
    assert member.take(0) == [(0, 9, 1)]
    letters.reject(member, (0, 0), (5, 6))
    assert member.acknowledge((1, 4, ACCEPT), (7, 9, ACCEPT)) is ErrorCode.NONE
    wait_for(lambda: words in letters.problem(), letters.problem)
    letters.put(5)
    assert member.take() == [(10, 14, 1)]
    assert letters.archiving() == 3
    assert words in letters.described()
    letters.mend(queue)
    letters.wait_for_letters([0, 5, 6])
    wait_for(lambda: not letters.problem() and not letters.archiving(), letters.problem)
    letters.end()


@pytest.mark.feature("V02")
def test_a_new_leader_copies_letters_though_no_member_fetches(cluster: Cluster) -> None:
    letters = Letters(cluster, queue=None)
    member = letters.member()
    assert member.take(0) == [(0, 9, 1)]
    letters.reject(member, (0, 2))
    wait_for(lambda: letters.archiving() == 3, letters.problem)
    letters.end()
    cluster.kill("broker-1")
    cluster.restart("broker-1")
    letters.mend(None)
    letters.wait_for_letters([0, 1, 2])


def test_a_group_that_gives_up_its_queue_archives_its_letters(cluster: Cluster) -> None:
    letters = Letters(cluster, queue=None)
    member = letters.member()
    assert member.take(0) == [(0, 9, 1)]
    letters.reject(member, (0, 9))
    wait_for(lambda: letters.archiving() == 10, letters.problem)
    letters.configure(errors_deadletterqueue_topic_name="")
    wait_for(lambda: letters.archiving() == 0, letters.problem)
    letters.end()


@pytest.mark.parametrize(("name", "words"), [("jobs", "begins with dlq."), ("__j", "are internal")])
def test_a_group_cannot_name_such_a_queue(cluster: Cluster, name: str, words: str) -> None:
    letters = Letters(cluster)
    with pytest.raises(AssertionError, match=words):
        letters.configure(errors_deadletterqueue_topic_name=name)
    letters.end()


@pytest.mark.feature("Y14", "V01", "V04")
def test_transactions_order_by_key_and_dead_letters_together(cluster: Cluster) -> None:
    letters = Letters(cluster, records=0)
    letters.configure(share_record_order="key")
    letters.put(4)
    letters.put(4)  # 0 and 4, 1 and 5, ... have one key
    one, other = letters.member(), letters.member()
    assert one.take(0, records=4) == [(0, 3, 1)]
    letters.begin()
    letters.acknowledge(one, (0, 1, ACCEPT), (2, 2, REJECT))
    letters.reject(one, (3, 3))
    letters.wait_for_letters([3])
    assert other.take(0) == [(7, 7, 1)], "the keys of 0, 1 and 2 are held by the transaction"
    letters.finish(commit=True)
    letters.wait_for_letters([2, 3])
    assert other.take() == [(4, 6, 1)]
    letters.begin()
    letters.acknowledge(other, (4, 4, REJECT))
    letters.finish(commit=False)
    assert one.take() == [(4, 4, 2)]
    letters.wait_for_letters([2, 3])
    letters.end()
