"""A Kafka client over TLS, with a certificate of its own, against a real broker."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme
from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from e2e.clusters import START_SECONDS, Cluster
from e2e.shared_zookeeper import with_shared_zookeeper
from free_ports import free_port
from kafka import KafkaConsumer, KafkaProducer
from kafka import TopicPartition as PythonPartition
from tidemark.cli.dev.layout import HOST, Layout
from waiting import PATIENCE_S

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

Client = dict[str, str | int | float | bool]
COUNT = 200
VALUE = bytes(range(256)) * 400
"""A hundred kilobytes: all of them are many pieces of several batches."""


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """PEM files by librdkafka's keys, which are the broker's."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1")
    names = {"ssl.ca": "ca.pem", "ssl.certificate": "tls.crt", "ssl.key": "tls.key"}
    found = {f"{key}.location": str(tmp_path / name) for key, name in names.items()}
    authority.cert_pem.write_to_path(found["ssl.ca.location"])
    issued.cert_chain_pems[0].write_to_path(found["ssl.certificate.location"])
    issued.private_key_pem.write_to_path(found["ssl.key.location"])
    return found


@pytest.fixture
def client(tmp_path: Path, files: dict[str, str]) -> Iterator[Client]:
    """What librdkafka is told to get in, at a third listener beside the cluster's usual two."""
    layout = Layout.on_free_ports(tmp_path / "cluster", brokers=1, controllers=1)
    ports = layout.member("broker-1").ports
    port = free_port()
    listeners = {"CLIENT": ports["client"], "INTERNAL": ports["internal"], "SECURE": port}
    keys = {
        "listeners": ",".join(f"{name}://{HOST}:{number}" for name, number in listeners.items()),
        "listener.security.protocol.map": "SECURE:SSL",
        "ssl.client.auth": "required",
        **files,
    }
    cluster = Cluster(with_shared_zookeeper(layout), overrides={"broker": keys})
    try:
        cluster.start(START_SECONDS)
        yield {"bootstrap.servers": f"{HOST}:{port}", "security.protocol": "ssl", **files}
    finally:
        cluster.end()


@contextlib.contextmanager
def consumer(client: Client, topic: str) -> Iterator[Consumer]:
    reading = Consumer({**client, "group.id": "g", "auto.offset.reset": "earliest"})
    reading.assign([TopicPartition(topic, 0, 0)])
    try:
        yield reading
    finally:
        reading.close()


def create(client: Client, topic: str) -> None:
    admin = AdminClient(client)
    for made in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        made.result(PATIENCE_S)


def test_what_is_produced_over_tls_is_consumed_over_tls(client: Client) -> None:
    create(client, "secret")
    producer = Producer({**client, "enable.idempotence": True, "linger.ms": 5})
    for number in range(COUNT):
        producer.produce("secret", VALUE, str(number).encode())
    assert producer.flush(PATIENCE_S) == 0
    found: list[Message] = []
    with consumer(client, "secret") as reading:
        while len(found) < COUNT:
            batch = reading.consume(COUNT, timeout=PATIENCE_S)
            assert batch, f"only {len(found)} of {COUNT} came"
            found += batch
    assert [one.key() for one in found] == [str(number).encode() for number in range(COUNT)]
    assert {one.value() for one in found} == {VALUE}


def test_a_client_without_a_certificate_does_not_get_in(client: Client) -> None:
    own = ("ssl.certificate.location", "ssl.key.location")
    stranger = {key: value for key, value in client.items() if key not in own}
    with pytest.raises(KafkaException):
        AdminClient(stranger).list_topics(timeout=2)


@pytest.mark.feature("SE08")
def test_kafka_python_shows_its_certificate(client: Client, files: dict[str, str]) -> None:
    create(client, "secret")
    settings = {
        "bootstrap_servers": [client["bootstrap.servers"]],
        "security_protocol": "SSL",
        "ssl_cafile": files["ssl.ca.location"],
    }
    own = {
        "ssl_certfile": files["ssl.certificate.location"],
        "ssl_keyfile": files["ssl.key.location"],
    }
    producer = KafkaProducer(**settings, **own)
    for number in range(COUNT):
        producer.send("secret", VALUE, str(number).encode())
    producer.flush(PATIENCE_S)
    producer.close()
    reading = KafkaConsumer(**settings, **own, auto_offset_reset="earliest", group_id=None)
    reading.assign([PythonPartition("secret", 0)])
    found = [next(reading) for _ in range(COUNT)]
    reading.close()
    assert [(one.key, one.value) for one in found] == [
        (str(number).encode(), VALUE) for number in range(COUNT)
    ]
