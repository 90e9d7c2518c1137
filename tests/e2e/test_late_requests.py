"""Requests that come late, held back by a proxy: what KIP-890 is about (docs/transactions.md)."""

import asyncio
import contextlib
import time
from collections.abc import Iterator

import confluent_kafka
import confluent_kafka.admin
import pytest
from e2e.bounded_librdkafka import BACK_WITHIN_S, within
from e2e.clusters import Cluster, StartCluster
from e2e.kafka_wire import Wire
from e2e.txn_wire import end, init, write
from e2e.wire_proxy import HOST, WireProxy, never
from tidemark.client import TransactionalProducer
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode
from waiting import PATIENCE_S, wait_for

SMALL = {"transaction.state.log.num.partitions": 3, "offsets.topic.num.partitions": 3}


class Delayed:
    """One broker behind the proxy, a coordinator, and topics ``a`` and ``b``."""

    def __init__(self, start_cluster: StartCluster, proxy: WireProxy) -> None:
        advertised = f"CLIENT://{HOST}:{proxy.port}"
        overrides = {"broker": {**SMALL, "advertised.listeners": advertised}}
        self.cluster: Cluster = start_cluster(txn_coordinators=1, overrides=overrides)
        self.proxy = proxy
        self._producers: list[confluent_kafka.Producer] = []
        proxy.broker_port = self.cluster.layout.member("broker-1").ports["client"]
        admin = confluent_kafka.admin.AdminClient({"bootstrap.servers": self.bootstrap})
        topics = [confluent_kafka.admin.NewTopic(name, 1, 1) for name in ("a", "b")]
        for made in admin.create_topics(topics).values():
            made.result(PATIENCE_S)

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.proxy.port}"

    def producer(self) -> confluent_kafka.Producer:
        """librdkafka: transactions v1."""
        made = confluent_kafka.Producer(
            {
                "bootstrap.servers": self.bootstrap,
                "transactional.id": "late",
                "linger.ms": 0,
                "socket.timeout.ms": 10_000,
            }
        )
        self._producers.append(made)
        made.init_transactions(PATIENCE_S)
        return made

    def close(self) -> None:
        """End the producers: each would look for its coordinator for as long as it lives."""
        for producer in self._producers:
            producer.purge()
            with contextlib.suppress(confluent_kafka.KafkaException):  # its session is over
                within(BACK_WITHIN_S, "Producer.close", producer.close)

    def wait_decided(self, topic: str) -> None:
        """Until every transaction in the topic has its marker."""
        with Wire(self.proxy.broker_port) as wire:

            def decided() -> bool:
                (found,) = wire.fetch((topic, 0, 0), isolation_level=1).topics[0].partitions
                return bool(found.result.last_stable_offset == found.result.high_watermark)

            wait_for(decided, f"every transaction in {topic} is decided")

    def committed(self, topic: str) -> list[str]:
        """What a reader of committed records finds."""
        reader = confluent_kafka.Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "none",
                "isolation.level": "read_committed",
                "enable.partition.eof": True,
            }
        )
        reader.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        found: list[str] = []
        deadline = time.monotonic() + PATIENCE_S
        while time.monotonic() < deadline:
            message = reader.poll(1)
            if message is None:
                continue
            problem = message.error()
            if problem is not None:
                assert problem.code() == confluent_kafka.KafkaError._PARTITION_EOF
                break
            found.append((message.value() or b"").decode())
        reader.close()
        return found


@pytest.fixture
def delayed(start_cluster: StartCluster) -> Iterator[Delayed]:
    with WireProxy() as proxy, contextlib.closing(Delayed(start_cluster, proxy)) as made:
        yield made


def commit_late(delayed: Delayed) -> confluent_kafka.Producer:
    """A first transaction whose EndTxn is held back; the client repeats it and goes on."""
    producer = delayed.producer()
    producer.begin_transaction()
    producer.produce("a", value="first")
    producer.flush(PATIENCE_S)
    delayed.proxy.hold_next(ApiKey.END_TXN)
    producer.commit_transaction(PATIENCE_S)
    assert delayed.proxy.caught.is_set()
    return producer


@pytest.mark.xfail(
    reason="transactions v1 cannot tell a late EndTxn from a current one: docs/transactions.md",
    raises=AssertionError,
    strict=True,
)
def test_a_late_end_of_a_v1_transaction_leaves_the_next_one_alone(delayed: Delayed) -> None:
    producer = commit_late(delayed)
    producer.begin_transaction()
    producer.produce("a", value="second, to be aborted")
    producer.flush(PATIENCE_S)
    delayed.proxy.release()
    delayed.wait_decided("a")
    try:
        producer.abort_transaction(PATIENCE_S)
    finally:
        assert delayed.committed("a") == ["first"]


@pytest.mark.feature("L16")
def test_a_late_partition_of_a_v1_transaction_blocks_no_reader(delayed: Delayed) -> None:
    producer = delayed.producer()
    producer.begin_transaction()
    delayed.proxy.hold_next(ApiKey.ADD_PARTITIONS_TO_TXN)
    producer.produce("a", value="first")
    producer.flush(PATIENCE_S)
    producer.commit_transaction(PATIENCE_S)
    producer.begin_transaction()
    producer.produce("b", value="second")
    producer.flush(PATIENCE_S)
    delayed.proxy.release()
    producer.commit_transaction(PATIENCE_S)
    assert (delayed.committed("a"), delayed.committed("b")) == (["first"], ["second"])


@pytest.mark.feature("L16")
def test_a_v1_abort_before_any_partition_came_is_refused(delayed: Delayed) -> None:
    """To the coordinator the last transaction ended by a commit, and this may be its end asked
    otherwise. The session is over, as with Kafka; in v2 the epoch tells the two apart.
    """
    producer = delayed.producer()
    producer.begin_transaction()
    producer.produce("a", value="first")
    producer.commit_transaction(PATIENCE_S)
    delayed.proxy.holds = lambda api_key, _frame: api_key == ApiKey.ADD_PARTITIONS_TO_TXN
    producer.begin_transaction()
    producer.produce("a", value="second")
    assert delayed.proxy.caught.wait(PATIENCE_S)
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        producer.abort_transaction(20)
    problem = refused.value.args[0]
    assert (problem.code(), problem.fatal()) == (ErrorCode.INVALID_TXN_STATE, True)
    delayed.proxy.holds = never
    delayed.producer()
    assert delayed.committed("a") == ["first"]


@pytest.mark.feature("L16", "N01", "N02")
def test_a_late_end_of_a_v2_transaction_leaves_the_next_one_alone(delayed: Delayed) -> None:
    proxy = delayed.proxy
    with Wire(delayed.proxy.broker_port) as direct:
        first = init(direct)
        assert write(direct, first, 0, b"first") is ErrorCode.NONE
        proxy.hold_next(ApiKey.END_TXN)
        with Wire(proxy.port) as given_up, pytest.raises(EOFError):
            end(given_up, first, commit=True)
        code, *second = end(direct, first, commit=True)
        assert code is ErrorCode.NONE
        assert write(direct, (second[0], second[1]), 0, b"to be aborted") is ErrorCode.NONE
        proxy.release()
        assert end(direct, (second[0], second[1]), commit=False)[0] is ErrorCode.NONE
    assert delayed.committed("a") == ["first"]


@pytest.mark.feature("L02", "L16")
def test_a_late_batch_of_a_v2_transaction_is_refused(delayed: Delayed) -> None:
    with Wire(delayed.proxy.broker_port) as direct:
        first = init(direct)
        assert write(direct, first, 0, b"first") is ErrorCode.NONE
        end(direct, first, commit=True)
        delayed.wait_decided("a")
        assert write(direct, first, 1, b"late") is ErrorCode.INVALID_PRODUCER_EPOCH
    assert delayed.committed("a") == ["first"]


@pytest.mark.feature("L16", "N01", "N02")
def test_the_native_clients_next_transaction_survives_its_late_end(delayed: Delayed) -> None:
    async def run() -> None:
        producer = TransactionalProducer(delayed.bootstrap, transactional_id="late")
        async with producer:
            await producer.init()
            await producer.begin()
            await producer.send("a", b"first", partition=0)
            delayed.proxy.hold_next(ApiKey.END_TXN)
            await producer.commit()
            assert delayed.proxy.caught.is_set()
            await producer.begin()
            await producer.send("a", b"second, to be aborted", partition=0)
            await asyncio.to_thread(delayed.proxy.release)
            await producer.abort()

    asyncio.run(run())
    assert delayed.committed("a") == ["first"]
