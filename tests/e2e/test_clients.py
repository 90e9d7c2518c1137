"""Unmodified Kafka clients against real brokers: what one writes, every other reads unchanged."""

import gc
import socket
from collections import defaultdict
from collections.abc import Callable, Iterator

import pytest
from e2e.client_matrix import (
    CLIENTS,
    CODECS,
    KAFKA_CLIENTS,
    Message,
    WriteRefused,
    installed,
    is_installed,
    sample,
)
from e2e.clusters import Cluster, StartCluster
from e2e.wire import (
    ask,
    connect,
    create_topic,
    leader_of,
    live_brokers,
    stored,
    stored_records,
    to_leader,
)
from tidemark.cli.dev.layout import HOST
from tidemark.codec.murmur2 import partition_for_key
from tidemark.codec.record_batch import TRANSACTIONAL_BIT
from tidemark.codec.records import build_batch
from tidemark.kafka.api_versions import (
    ApiVersionsRequest,
    read_api_versions_response,
    write_api_versions_request,
)
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode
from tidemark.runtime.clock import Clock

pytestmark = [pytest.mark.e2e]

Names = Callable[[str], str]
EVERY_CLIENT = tuple(CLIENTS)
INSTALLED = tuple(name for name in CLIENTS if is_installed(name))
DEFAULT_BYTES_MAX = 1_048_588  # Kafka's default of max.message.bytes
TOO_LARGE = r"(?i)message_?size_?too_?large|message_too_large|message size too large"


WrittenBy = Callable[[str], str]


@pytest.fixture(scope="module")
def written_by(cluster: Cluster) -> WrittenBy:
    """A topic that one client wrote: the sample in each partition, partition i in codec i."""
    topics: dict[str, str] = {}

    def written(name: str) -> str:
        client = installed(name)
        if name not in topics:
            topic = topics[name] = f"written-by-{name}"
            create_topic(cluster, topic, len(CODECS))
            for codec in client.codecs:
                messages = sample(client, CODECS.index(codec))
                client.write(client.bootstrap(cluster), topic, messages, codec=codec)
        return topics[name]

    return written


@pytest.mark.feature("Y01", "A01", "A02", "A20")
@pytest.mark.parametrize("reader", EVERY_CLIENT)
@pytest.mark.parametrize("writer", EVERY_CLIENT)
def test_what_one_client_writes_every_client_reads(
    cluster: Cluster, written_by: WrittenBy, writer: str, reader: str
) -> None:
    topic, client = written_by(writer), installed(reader)
    written = {
        CODECS.index(codec): sample(CLIENTS[writer], CODECS.index(codec))
        for codec in CLIENTS[writer].codecs
        if codec in client.codecs
    }
    counts = {partition: len(messages) for partition, messages in written.items()}
    found = client.read(client.bootstrap(cluster), topic, counts)
    assert [(one.partition, one.offset, one.key, one.value, one.headers) for one in found] == [
        (partition, offset, message.key, message.value, client.shown(message.headers))
        for partition, messages in written.items()
        for offset, message in enumerate(messages)
    ]


@pytest.mark.feature("A20", "A12", "B07")
@pytest.mark.parametrize("writer", EVERY_CLIENT)
def test_batches_are_stored_in_the_codec_they_came_in(
    cluster: Cluster, written_by: WrittenBy, writer: str
) -> None:
    topic = written_by(writer)
    for codec in CLIENTS[writer].codecs:
        partition = CODECS.index(codec)
        with to_leader(cluster, topic, partition) as wire:
            batches = stored(wire, topic, partition)
        codecs = {batch.header.compression for batch in batches}
        assert CODECS.index(codec) in codecs
        # A client may leave alone a batch that compression would make larger.
        assert codecs <= {CODECS.index(codec), 0}
        count = sum(len(batch.records) for batch in batches)
        assert count == len(sample(CLIENTS[writer], partition))
        assert len(batches) < count


@pytest.mark.feature("C02", "C03")
def test_clients_agree_on_the_partition_of_a_key(cluster: Cluster, topic_name: Names) -> None:
    topic, partitions = topic_name("keys"), 7
    create_topic(cluster, topic, partitions)
    keys = [b"user-%d" % number for number in range(40)] + ["ключ".encode(), b"\xff\xfe", b"x" * 99]
    for name in INSTALLED:
        client = CLIENTS[name]
        messages = [Message(key, name.encode()) for key in keys]
        client.write(client.bootstrap(cluster), topic, messages)
    for partition in range(partitions):
        with to_leader(cluster, topic, partition) as wire:
            records = stored_records(wire, topic, partition)
        here = sorted(key for key in keys if partition_for_key(key, partitions) == partition)
        by_client: dict[bytes, list[bytes]] = defaultdict(list)
        for record in records:
            by_client[record.value or b""].append(record.key or b"")
        assert {name: sorted(found) for name, found in by_client.items()} == (
            {name.encode(): here for name in INSTALLED} if here else {}
        )


@pytest.mark.feature("A01", "C03", "C01")
@pytest.mark.parametrize("name", EVERY_CLIENT)
def test_records_of_a_key_stay_in_order(cluster: Cluster, topic_name: Names, name: str) -> None:
    client, topic = installed(name), topic_name("order")
    create_topic(cluster, topic, 3)
    messages = [Message(b"k%d" % (number % 9), b"%d" % number) for number in range(900)]
    client.write(client.bootstrap(cluster), topic, messages, codec="lz4")
    by_key = defaultdict(list)
    for partition in range(3):
        with to_leader(cluster, topic, partition) as wire:
            for record in stored_records(wire, topic, partition):
                assert record.value is not None
                by_key[record.key].append((partition, int(record.value)))
    assert len(by_key) == 9
    for found in by_key.values():
        numbers = [number for _, number in found]
        assert len({partition for partition, _ in found}) == 1
        assert numbers == list(range(numbers[0], 900, 9))


@pytest.mark.feature("C06", "C07", "C08")
@pytest.mark.parametrize("acks", [0, 1, -1])
@pytest.mark.parametrize("name", EVERY_CLIENT)
def test_every_client_writes_with_every_kind_of_acknowledgement(
    cluster: Cluster, topic_name: Names, name: str, acks: int
) -> None:
    client, topic = installed(name), topic_name("acks")
    create_topic(cluster, topic)
    messages = [Message(None, b"%d" % number, (), 0) for number in range(20)]
    client.write(client.bootstrap(cluster), topic, messages, acks=acks)
    found = client.read(client.bootstrap(cluster), topic, {0: 20})
    assert [one.value for one in found] == [message.value for message in messages]


def value_of_batch(batch_bytes: int) -> bytes:
    """A value whose record, alone in its batch and without a key, makes a batch of this size."""
    for size in range(batch_bytes - 80, batch_bytes):
        if len(build_batch([(0, None, b"v" * size, ())])) == batch_bytes:
            return b"v" * size
    raise AssertionError("a varint grew just there")


@pytest.mark.feature("Y01", "A20")
@pytest.mark.parametrize("name", EVERY_CLIENT)
def test_a_batch_of_max_message_bytes_is_taken_and_one_byte_more_is_not(
    cluster: Cluster, topic_name: Names, name: str
) -> None:
    client, topic = installed(name), topic_name("large")
    create_topic(cluster, topic)
    bootstrap = client.bootstrap(cluster)
    largest, too_large = value_of_batch(DEFAULT_BYTES_MAX), value_of_batch(DEFAULT_BYTES_MAX + 1)
    client.write(bootstrap, topic, [Message(None, b"1", (), 0)])
    client.write(bootstrap, topic, [Message(None, largest, (), 0)])
    with pytest.raises(WriteRefused, match=TOO_LARGE):
        client.write(bootstrap, topic, [Message(None, too_large, (), 0)])
    found = client.read(bootstrap, topic, {0: 2})
    assert [one.value for one in found] == [b"1", largest]
    with to_leader(cluster, topic) as wire:
        assert [len(batch.data) for batch in stored(wire, topic)][1:] == [DEFAULT_BYTES_MAX]


@pytest.fixture
def dead_address() -> Iterator[str]:
    """An address that refuses connections: bound by us, listened on by nobody."""
    with socket.socket() as bound:
        bound.bind((HOST, 0))
        yield f"{HOST}:{bound.getsockname()[1]}"


@pytest.mark.feature("A14", "A15")
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("name", KAFKA_CLIENTS)
def test_one_live_bootstrap_server_of_several_is_enough(
    cluster: Cluster, topic_name: Names, dead_address: str, name: str
) -> None:
    client, topic = installed(name), topic_name("springboard")
    create_topic(cluster, topic, 3, leaders=[1, 2, 3])
    bootstrap = f"{dead_address},{cluster.kafka(2)}"
    messages = [Message(None, b"%d" % partition, (), partition) for partition in range(3)]
    client.write(bootstrap, topic, messages)
    found = client.read(bootstrap, topic, {0: 1, 1: 1, 2: 1})
    assert [(one.partition, one.value) for one in found] == [(0, b"0"), (1, b"1"), (2, b"2")]
    gc.collect()  # kafka-python forgets the socket of a refused connection: warn here, not later


@pytest.mark.feature("A13", "A05", "H06")
def test_every_broker_names_all_brokers_and_all_leaders(
    cluster: Cluster, topic_name: Names
) -> None:
    topic = topic_name("everywhere")
    create_topic(cluster, topic, 6)
    answers = []
    for broker in live_brokers(cluster):
        with connect(cluster.kafka(broker)) as wire:
            told = wire.metadata(topic)
        leaders = {one.partition: one.leader_id for one in told.topics[0].partitions}
        addresses = {one.node_id: f"{one.host}:{one.port}" for one in told.brokers}
        answers.append((leaders, addresses, told.cluster_id))
    assert answers[0] == answers[1] == answers[2]
    leaders, addresses, _ = answers[0]
    assert addresses == {broker: cluster.kafka(broker) for broker in (1, 2, 3)}
    assert sorted(leaders.values()) == [1, 1, 2, 2, 3, 3]
    assert leader_of(cluster, topic, 4) == leaders[4]


@pytest.mark.feature("A12", "C04", "C05")
@pytest.mark.parametrize("name", EVERY_CLIENT)
def test_clients_send_many_records_in_a_batch(
    cluster: Cluster, topic_name: Names, name: str
) -> None:
    client, topic = installed(name), topic_name("batched")
    create_topic(cluster, topic)
    messages = [Message(None, b"%d" % number, (), 0) for number in range(500)]
    client.write(client.bootstrap(cluster), topic, messages, linger_ms=2_000)
    with to_leader(cluster, topic) as wire:
        batches = stored(wire, topic)
    assert sum(batch.header.record_count for batch in batches) == 500
    assert len(batches) <= 50


@pytest.mark.feature("Y01")
def test_a_topic_that_is_not_there_is_made_by_writing_to_it(
    cluster: Cluster, topic_name: Names
) -> None:
    for name in INSTALLED:
        client, topic = CLIENTS[name], topic_name(name)
        client.write(client.bootstrap(cluster), topic, [Message(b"k", b"first")])
        assert [one.value for one in client.read(client.bootstrap(cluster), topic, {0: 1})] == [
            b"first"
        ]


CLIENT_SOFTWARE = ApiVersionsRequest("test", "1")
SHARE_APIS = {76, 77, 78, 79, 90, 91, 92}
SHARE_STATE_APIS = {83, 84, 85, 86, 87}


@pytest.mark.feature("Y01")
def test_what_is_not_served_is_not_advertised(cluster: Cluster) -> None:
    with connect(cluster.kafka(1)) as wire:
        body = wire.ask(ApiKey.API_VERSIONS, 3, write_api_versions_request(3, CLIENT_SOFTWARE))
    advertised = {one.api_key: one for one in read_api_versions_response(body, 3).api_versions}
    assert not set(advertised) & SHARE_STATE_APIS
    assert set(advertised) >= SHARE_APIS
    assert (advertised[ApiKey.PRODUCE].min_version, advertised[ApiKey.FETCH].max_version) == (0, 18)


@pytest.mark.feature("Y01")
def test_the_coordinator_of_a_share_group_is_that_of_a_group(cluster: Cluster) -> None:
    with connect(cluster.kafka(1)) as wire:
        share = ask(wire, ApiKey.FIND_COORDINATOR, 1, {"key": "g", "key_type": 2})
    assert share.error_code == ErrorCode.INVALID_REQUEST
    assert "A group of any type has the key type 0" in share.error_message


@pytest.mark.feature("Y01")
def test_a_transactional_write_waits_for_a_coordinator(start_cluster: StartCluster) -> None:
    cluster, topic = start_cluster(), "transactional"
    create_topic(cluster, topic)
    batch = build_batch(
        [(Clock().wall_ms(), b"k", b"v", ())],
        producer_id=1,
        producer_epoch=0,
        base_sequence=0,
        attributes_extra=TRANSACTIONAL_BIT,
    )
    with to_leader(cluster, topic) as wire:
        refused = wire.produce(topic, batch, transactional_id="t", acks=-1)
        assert refused.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
        assert "COORDINATOR_NOT_AVAILABLE" in (refused.error_message or "")
        assert stored(wire, topic) == []
