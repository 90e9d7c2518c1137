"""A follower on the wire, played by the test: one leader with a fixed image."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from e2e.broker_harness import RunningBroker, running_broker, topic_image
from e2e.kafka_wire import Wire, batch, produce_body, records_of
from tidemark.kafka import fetch, produce
from tidemark.kafka.apis import ApiKey
from tidemark.model.ids import BrokerId, LeaderEpoch, PartitionEpoch
from tidemark.model.metadata import ClusterDelta, PartitionImage, TopicImage

pytestmark = pytest.mark.e2e

FOLLOWER = 2
VERSION = 18


def two_replicas(name: str, *, leader: int = 1, epoch: int = 0, version: int = 0) -> TopicImage:
    """One partition on brokers 1 and 2, both in sync."""
    replicas = (BrokerId(1), BrokerId(FOLLOWER))
    state = PartitionImage(
        0, replicas, replicas, BrokerId(leader), LeaderEpoch(epoch), PartitionEpoch(version)
    )
    return replace(topic_image(name, 1), partitions=(state,))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    with running_broker(tmp_path, {"r": two_replicas("r")}) as running:
        yield running


class Follower:
    """Broker 2's connection, with a fetch session from its first answer on."""

    def __init__(self, broker: RunningBroker) -> None:
        self.wire = Wire(broker.port)
        self.topic_id = broker.server.partitions.table.by_name["r", 0].topic_id
        self.session = (0, 0)

    def ask(self, offset: int | None, *, wait_ms: int = 0, **fields: Any) -> int:
        """Send a fetch from ``offset``; None: nothing changed since the last."""
        wanted = []
        if offset is not None:
            one = fetch.FetchPartition(0, 0, offset, -1, 0, 1 << 20)._replace(**fields)
            wanted.append(fetch.FetchTopic("", self.topic_id, [one]))
        request = fetch.FetchRequest(
            FOLLOWER, 20, wait_ms, 1, 1 << 22, 0, *self.session, wanted, [], "", None
        )
        body = fetch.write_fetch_request(VERSION, request)
        return self.wire.send(ApiKey.FETCH, VERSION, body)

    def hear(self, number: int) -> fetch.FetchResponse:
        """The answer."""
        body = self.wire.receive(ApiKey.FETCH, VERSION, number)
        response = fetch.read_fetch_response(body, VERSION)
        self.session = (response.session_id, self.session[1] + 1)
        return response

    def fetch(self, offset: int | None, **fields: Any) -> fetch.FetchResponse:
        """Both."""
        return self.hear(self.ask(offset, **fields))


@pytest.fixture
def follower(broker: RunningBroker) -> Iterator[Follower]:
    played = Follower(broker)
    with played.wire:
        yield played


def result_of(response: fetch.FetchResponse) -> fetch.FetchPartitionResult:
    """The one partition's."""
    return response.topics[0].partitions[0].result


@pytest.mark.feature("A07", "D06", "G11")
def test_a_waiting_follower_gets_an_append_at_once_and_commits_it(
    broker: RunningBroker, follower: Follower
) -> None:
    follower.fetch(0)
    waiting = follower.ask(None, wait_ms=30_000)
    with Wire(broker.port) as producer, Wire(broker.port) as consumer:
        body = produce_body("r", batch(b"one"), acks=-1, timeout_ms=30_000)
        produced = producer.send(ApiKey.PRODUCE, 9, body)
        came = follower.hear(waiting)
        assert records_of(came) == [b"one"]
        assert result_of(came).high_watermark == 0
        assert records_of(consumer.fetch(("r", 0, 0))) == []
        assert result_of(follower.fetch(1, wait_ms=30_000)).high_watermark == 1  # not parked
        answer = produce.read_produce_response(producer.receive(ApiKey.PRODUCE, 9, produced), 9)
        assert answer.topics[0][2][0].error_code == 0
        assert records_of(consumer.fetch(("r", 0, 0))) == [b"one"]


@pytest.mark.feature("A07", "G11")
def test_a_waiting_follower_is_called_for_a_partition_that_it_has_not_named(
    broker: RunningBroker, follower: Follower
) -> None:
    """A new topic's first write does not wait for the end of a long poll of the others."""
    follower.fetch(0)
    waiting = follower.ask(None, wait_ms=30_000)
    with Wire(broker.port) as other:  # answered: the fetch was taken
        other.metadata("r")
    while not broker.call(lambda: broker.server.partitions.parked.requests.count):
        pass
    broker.publish(ClusterDelta(topics_changed=(two_replicas("s"),)))
    with Wire(broker.port) as producer:
        body = produce_body("s", batch(b"one"), acks=-1, timeout_ms=30_000)
        produced = producer.send(ApiKey.PRODUCE, 9, body)
        assert follower.hear(waiting).topics == []
        follower.topic_id = broker.server.partitions.table.by_name["s", 0].topic_id
        assert records_of(follower.fetch(0)) == [b"one"]
        waiting = follower.ask(1, wait_ms=30_000)
        answer = produce.read_produce_response(producer.receive(ApiKey.PRODUCE, 9, produced), 9)
        assert answer.topics[0][2][0].error_code == 0
        assert result_of(follower.hear(waiting)).high_watermark == 1
        # Whoever has fetched is called no more: an append waits for bytes as ever.
        waiting = follower.ask(None, wait_ms=300)
        follower.hear(waiting)
    led = broker.server.partitions.table.by_name["s", 0].partition
    assert broker.call(lambda: led.replica_set.unfetched) == ()


@pytest.mark.feature("G22")
def test_a_diverged_follower_hears_where_and_no_records(
    broker: RunningBroker, follower: Follower
) -> None:
    with Wire(broker.port) as wire:
        wire.produce("r", batch(b"one"), acks=1)
    broker.publish(ClusterDelta(topics_changed=(two_replicas("r", epoch=5, version=1),)))
    response = follower.fetch(4, current_leader_epoch=5, last_fetched_epoch=3)
    assert result_of(response).diverging_epoch == (0, 1)
    assert records_of(response) == []


@pytest.mark.feature("C09", "A16")
def test_a_parked_produce_hears_at_once_who_leads_now(broker: RunningBroker) -> None:
    with Wire(broker.port) as wire:
        body = produce_body("r", batch(b"one"), version=10, acks=-1, timeout_ms=30_000)
        number = wire.send(ApiKey.PRODUCE, 10, body)
        with Wire(broker.port) as other:  # answered: the first was taken
            other.metadata("r")
        while not broker.call(lambda: broker.server.partitions.parked.requests.count):
            pass
        broker.publish(
            ClusterDelta(topics_changed=(two_replicas("r", leader=2, epoch=1, version=1),))
        )
        answer = produce.read_produce_response(wire.receive(ApiKey.PRODUCE, 10, number), 10)
    result = answer.topics[0][2][0]
    assert (result.error_code, result.current_leader) == (6, (2, 1))


@pytest.mark.feature("D06")
def test_a_new_leader_does_not_tell_an_end_it_cannot_know(
    broker: RunningBroker, follower: Follower
) -> None:
    with Wire(broker.port) as wire:
        wire.produce("r", batch(b"one"), acks=1)
        broker.publish(ClusterDelta(topics_changed=(two_replicas("r", epoch=1, version=1),)))
        assert wire.offset("r", 0, -1).error_code == 78
        assert wire.offset("r", 0, -1, version=4).error_code == 5
        assert wire.offset("r", 0, -2).error_code == 0
        follower.fetch(1, current_leader_epoch=1, last_fetched_epoch=0)
        assert wire.offset("r", 0, -1).offset == 1
