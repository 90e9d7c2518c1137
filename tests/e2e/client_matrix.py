"""Every Kafka client we have, behind one small face: write these messages, read that topic; without
a login, or with one over TLS.

A client that cannot say something (kcat has one set of headers a run) does as many runs as it
needs. What a broker refuses is raised as `WriteRefused` with the client's own words.
"""

import asyncio
import itertools
import random
import shutil
import ssl
import subprocess
import time
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, NamedTuple, Protocol

import aiokafka
import confluent_kafka
import kafka
import kafka.codec
import pytest
from aiokafka.errors import KafkaError as AiokafkaError
from e2e.clusters import Cluster
from kafka.errors import KafkaError as KafkaPythonError
from tidemark.client import TidemarkError, sync
from waiting import PATIENCE_S

CODECS: tuple[str, ...] = ("none", "gzip", "snappy", "lz4", "zstd")
WAIT_S = PATIENCE_S
LINGER_MS = 20
BIG = 8 * 1024 * 1024  # the client must not be the one who refuses

Headers = tuple[tuple[str, bytes | None], ...]


class Message(NamedTuple):
    """What is written. ``partition`` None: the client's own partitioner chooses."""

    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    partition: int | None = None


class Received(NamedTuple):
    """What was read. kcat shows headers as text: compare with ``Client.shown``."""

    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers | str


class WriteRefused(Exception):  # noqa: N818 - an outcome that tests ask for
    """A message was not acknowledged; the text is the client's."""


class Login(NamedTuple):
    """How to log in over TLS."""

    user: str
    password: str
    ca: str
    """PEM file of the authority."""

    @property
    def librdkafka(self) -> dict[str, str]:
        """For every librdkafka: those before 2.6.1 send a wrong nonce with SCRAM."""
        return {
            "security.protocol": "sasl_ssl",
            "sasl.mechanism": "PLAIN",
            "sasl.username": self.user,
            "sasl.password": self.password,
            "ssl.ca.location": self.ca,
        }

    @property
    def kafka_python(self) -> dict[str, Any]:
        return {
            "security_protocol": "SASL_SSL",
            "sasl_mechanism": "SCRAM-SHA-512",
            "sasl_plain_username": self.user,
            "sasl_plain_password": self.password,
            "ssl_cafile": self.ca,
        }

    @property
    def aiokafka(self) -> dict[str, Any]:
        context = ssl.create_default_context(cafile=self.ca)
        settings = {name: value for name, value in self.kafka_python.items() if "ssl_" not in name}
        return {**settings, "ssl_context": context}

    @property
    def tidemark(self) -> dict[str, Any]:
        return {
            "security_protocol": "SASL_SSL",
            "sasl_username": self.user,
            "sasl_password": self.password,
            "ssl_ca_location": self.ca,
        }


class Client(Protocol):
    """One client library or tool."""

    name: ClassVar[str]
    codecs: ClassVar[tuple[str, ...]]
    writes_empty_records: ClassVar[bool]
    """Whether it lets a record have neither key nor value."""
    writes_null_headers: ClassVar[bool]

    def bootstrap(self, cluster: Cluster) -> str:
        """Addresses to begin at."""

    def write(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        acks: int = -1,
        linger_ms: int = LINGER_MS,
    ) -> None:
        """Write in order and wait for the acknowledgements. Raises WriteRefused."""

    def read(self, bootstrap: str, topic: str, counts: Mapping[int, int]) -> list[Received]:
        """The first ``counts[partition]`` messages of each partition, by partition and offset."""

    def shown(self, headers: Headers) -> Headers | str:
        """How this client shows headers when it reads."""


class _KafkaAddressed:
    name: ClassVar[str]
    codecs: ClassVar[tuple[str, ...]] = CODECS
    writes_empty_records: ClassVar[bool] = False
    writes_null_headers: ClassVar[bool] = True

    def __init__(self, login: Login | None = None) -> None:
        self.login = login

    def bootstrap(self, cluster: Cluster) -> str:
        return cluster.bootstrap

    def shown(self, headers: Headers) -> Headers | str:
        return headers


def _sorted(found: list[Received]) -> list[Received]:
    return sorted(found, key=lambda one: (one.partition, one.offset))


def _deadline() -> float:
    return time.monotonic() + WAIT_S


class Confluent(_KafkaAddressed):
    """confluent-kafka, over librdkafka."""

    name = "confluent-kafka"
    writes_empty_records = True

    def write(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        acks: int = -1,
        linger_ms: int = LINGER_MS,
    ) -> None:
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": bootstrap,
                "compression.type": codec,
                "acks": acks,
                "enable.idempotence": acks == -1,
                "message.max.bytes": BIG,
                "partitioner": "murmur2_random",
                "linger.ms": linger_ms,
                **(self.login.librdkafka if self.login else {}),
            }
        )
        problems: list[confluent_kafka.KafkaError] = []

        def delivered(problem: confluent_kafka.KafkaError | None, _: object) -> None:
            if problem is not None:
                problems.append(problem)

        for message in messages:
            producer.produce(
                topic,
                message.value,
                message.key,
                -1 if message.partition is None else message.partition,
                headers=list(message.headers),
                on_delivery=delivered,
            )
        assert producer.flush(WAIT_S) == 0
        if problems:
            raise WriteRefused(f"{problems[0].name()} {problems[0].str()}")

    def read(self, bootstrap: str, topic: str, counts: Mapping[int, int]) -> list[Received]:
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": bootstrap,
                "group.id": "unused",
                "enable.auto.commit": False,
                "check.crcs": True,
                "fetch.wait.max.ms": 100,
                **(self.login.librdkafka if self.login else {}),
            }
        )
        try:
            consumer.assign([confluent_kafka.TopicPartition(topic, one, 0) for one in counts])
            found = self._poll(consumer, sum(counts.values()))
        finally:
            consumer.close()
        return _sorted(found)

    def _poll(self, consumer: confluent_kafka.Consumer, count: int) -> list[Received]:
        found: list[Received] = []
        deadline = _deadline()
        while len(found) < count:
            assert time.monotonic() < deadline, f"{len(found)} of {count} read"
            for message in consumer.consume(count - len(found), 0.5):
                assert message.error() is None, message.error()
                found.append(_received_by_confluent(message))
        return found


def _received_by_confluent(message: Any) -> Received:
    return Received(
        message.partition(),
        message.offset(),
        message.timestamp()[1],
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
    )


class KafkaPython(_KafkaAddressed):
    """kafka-python."""

    name = "kafka-python"
    writes_null_headers = False
    # It compresses with python-snappy, which need not be installed.
    codecs = tuple(codec for codec in CODECS if codec != "snappy" or kafka.codec.has_snappy())

    def write(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        acks: int = -1,
        linger_ms: int = LINGER_MS,
    ) -> None:
        producer = kafka.KafkaProducer(
            bootstrap_servers=bootstrap.split(","),
            compression_type=None if codec == "none" else codec,
            acks="all" if acks == -1 else acks,
            enable_idempotence=acks == -1,
            max_request_size=BIG,
            linger_ms=linger_ms,
            **(self.login.kafka_python if self.login else {}),
        )
        try:
            sent = [
                producer.send(
                    topic,
                    message.value,
                    message.key,
                    headers=list(message.headers),
                    partition=message.partition,
                )
                for message in messages
            ]
            for future in sent:
                future.get(WAIT_S)
        except KafkaPythonError as problem:
            raise WriteRefused(repr(problem)) from None
        finally:
            producer.close(timeout=WAIT_S)

    def read(self, bootstrap: str, topic: str, counts: Mapping[int, int]) -> list[Received]:
        consumer = kafka.KafkaConsumer(
            bootstrap_servers=bootstrap.split(","),
            group_id=None,
            enable_auto_commit=False,
            **(self.login.kafka_python if self.login else {}),
        )
        try:
            partitions = [kafka.TopicPartition(topic, one) for one in counts]
            consumer.assign(partitions)
            for partition in partitions:
                consumer.seek(partition, 0)
            found: list[Received] = []
            deadline = _deadline()
            while len(found) < sum(counts.values()):
                assert time.monotonic() < deadline, f"{len(found)} read"
                for records in consumer.poll(timeout_ms=500).values():
                    found += [_received(record) for record in records]
        finally:
            consumer.close()
        return _sorted(found)


def _received(record: Any) -> Received:
    """From kafka-python's, aiokafka's or our own record."""
    return Received(
        record.partition,
        record.offset,
        record.timestamp_ms if hasattr(record, "timestamp_ms") else record.timestamp,
        record.key,
        record.value,
        tuple((name, value) for name, value in record.headers),
    )


class Aiokafka(_KafkaAddressed):
    """aiokafka."""

    name = "aiokafka"

    def write(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        acks: int = -1,
        linger_ms: int = LINGER_MS,
    ) -> None:
        async def write() -> None:
            producer = aiokafka.AIOKafkaProducer(
                bootstrap_servers=bootstrap.split(","),
                compression_type=None if codec == "none" else codec,
                acks="all" if acks == -1 else acks,
                enable_idempotence=acks == -1,
                max_request_size=BIG,
                linger_ms=linger_ms,
                **(self.login.aiokafka if self.login else {}),
            )
            await producer.start()
            try:
                sent = [
                    await producer.send(
                        topic,
                        message.value,
                        message.key,
                        headers=list(message.headers),
                        partition=message.partition,
                    )
                    for message in messages
                ]
                for future in sent:
                    async with asyncio.timeout(WAIT_S):
                        await future
            except AiokafkaError as problem:
                raise WriteRefused(repr(problem)) from None
            finally:
                await producer.stop()

        asyncio.run(write())

    def read(self, bootstrap: str, topic: str, counts: Mapping[int, int]) -> list[Received]:
        async def read() -> list[Received]:
            consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=bootstrap.split(","),
                group_id=None,
                enable_auto_commit=False,
                **(self.login.aiokafka if self.login else {}),
            )
            await consumer.start()
            try:
                partitions = [aiokafka.TopicPartition(topic, one) for one in counts]
                consumer.assign(partitions)
                for partition in partitions:
                    consumer.seek(partition, 0)
                found: list[Received] = []
                deadline = _deadline()
                while len(found) < sum(counts.values()):
                    assert time.monotonic() < deadline, f"{len(found)} read"
                    for records in (await consumer.getmany(timeout_ms=500)).values():
                        found += [_received(record) for record in records]
            finally:
                await consumer.stop()
            return found

        return _sorted(asyncio.run(read()))


class Kcat(_KafkaAddressed):
    """kcat, the command."""

    name = "kcat"
    MESSAGE_END: ClassVar = b"<<end>>"
    KEY_END: ClassVar = b"<<key>>"

    def write(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        acks: int = -1,
        linger_ms: int = LINGER_MS,
    ) -> None:
        for (partition, headers, nulls), alike in itertools.groupby(messages, self._run_of):
            argv = ["-P", "-t", topic, "-z", codec, "-X", f"acks={acks}", "-D", "<<end>>"]
            argv += ["-K", "<<key>>", "-X", f"message.max.bytes={BIG}"]
            argv += ["-X", "topic.partitioner=murmur2_random", "-X", f"linger.ms={linger_ms}"]
            argv += ["-X", f"enable.idempotence={str(acks == -1).lower()}"]
            argv += [] if partition is None else ["-p", str(partition)]
            argv += ["-Z"] if nulls else []
            for name, value in headers:
                argv += ["-H", name if value is None else f"{name}={value.decode()}"]
            self._kcat(bootstrap, argv, b"".join(map(self._line, alike)))

    @staticmethod
    def _run_of(message: Message) -> tuple[int | None, Headers, bool]:
        """What one run has in common: with -Z every empty value is null."""
        return message.partition, message.headers, message.value is None

    def _line(self, message: Message) -> bytes:
        key = b"" if message.key is None else message.key + self.KEY_END
        return key + (message.value or b"") + self.MESSAGE_END

    def read(self, bootstrap: str, topic: str, counts: Mapping[int, int]) -> list[Received]:
        # Binary sizes first, then the bytes themselves; headers end at the line's end.
        argv = ["-C", "-t", topic, "-o", "beginning", "-e", "-q", "-f", r"%p %o %T %K %S\n%k%s%h\n"]
        argv += ["-X", "check.crcs=true", "-X", "fetch.wait.max.ms=100"]
        data = self._kcat(bootstrap, argv, b"")
        found, position = [], 0
        while position < len(data):
            one, position = self._parsed(data, position)
            found.append(one)
        wanted = [one for one in found if one.offset < counts.get(one.partition, 0)]
        assert len(wanted) == sum(counts.values()), f"{len(wanted)} read"
        return _sorted(wanted)

    @staticmethod
    def _parsed(data: bytes, position: int) -> tuple[Received, int]:
        end = data.index(b"\n", position)
        partition, offset, timestamp, key_size, value_size = map(int, data[position:end].split())
        key_end = end + 1 + max(0, key_size)
        value_end = key_end + max(0, value_size)
        key = None if key_size < 0 else data[end + 1 : key_end]
        value = None if value_size < 0 else data[key_end:value_end]
        line_end = data.index(b"\n", value_end)
        headers = data[value_end:line_end].decode()
        return Received(partition, offset, timestamp, key, value, headers), line_end + 1

    def shown(self, headers: Headers) -> str:
        return ",".join(
            f"{name}={'NULL' if value is None else value.decode()}" for name, value in headers
        )

    def _kcat(self, bootstrap: str, argv: list[str], data: bytes) -> bytes:
        for name, value in (self.login.librdkafka if self.login else {}).items():
            argv += ["-X", f"{name}={value}"]
        done = subprocess.run(
            ["kcat", "-b", bootstrap, *argv], input=data, capture_output=True, timeout=PATIENCE_S
        )
        words = done.stderr.decode(errors="replace")
        if done.returncode != 0 or "Delivery failed" in words:
            raise WriteRefused(words)
        return done.stdout


class Tidemark:
    """Our own client, over Kafka's protocol."""

    name: ClassVar[str] = "tidemark"
    codecs: ClassVar[tuple[str, ...]] = CODECS
    writes_empty_records: ClassVar[bool] = True
    writes_null_headers: ClassVar[bool] = True
    transport: ClassVar = "kafka"

    def __init__(self, login: Login | None = None) -> None:
        self.login = login

    def bootstrap(self, cluster: Cluster) -> str:
        return cluster.bootstrap

    def shown(self, headers: Headers) -> Headers | str:
        return headers

    def write(
        self,
        bootstrap: str,
        topic: str,
        messages: Sequence[Message],
        *,
        codec: str = "none",
        acks: int = -1,
        linger_ms: int = LINGER_MS,
    ) -> None:
        settings: dict[str, Any] = {
            "transport": self.transport,
            "compression_type": codec,
            "acks": acks,
            "max_request_size": BIG,
            "linger_ms": linger_ms,
            **(self.login.tidemark if self.login else {}),
        }
        try:
            with sync.Producer(bootstrap, **settings) as producer:
                sent = [
                    producer.enqueue(
                        topic,
                        message.value,
                        message.key,
                        partition=message.partition,
                        headers=message.headers,
                    )
                    for message in messages
                ]
                for delivery in sent:
                    delivery.result()
        except TidemarkError as problem:
            raise WriteRefused(f"{type(problem).__name__}: {problem}") from None

    def read(self, bootstrap: str, topic: str, counts: Mapping[int, int]) -> list[Received]:
        settings: dict[str, Any] = {
            "transport": self.transport,
            "auto_offset_reset": "earliest",
            **(self.login.tidemark if self.login else {}),
        }
        with sync.Consumer(bootstrap, **settings) as consumer:
            consumer.assign([(topic, one) for one in counts])
            found: list[Received] = []
            deadline = _deadline()
            while len(found) < sum(counts.values()):
                assert time.monotonic() < deadline, f"{len(found)} read"
                found += [_received(record) for record in consumer.poll(timeout_ms=500)]
        return _sorted(found)


class TidemarkGrpc(Tidemark):
    """Our own client, over gRPC."""

    name = "tidemark-grpc"
    transport: ClassVar = "grpc"

    def bootstrap(self, cluster: Cluster) -> str:
        return ",".join(
            cluster.grpc(member.number)
            for member in cluster.layout.members()
            if member.kind == "broker"
        )


_ALL: tuple[Client, ...] = (
    Confluent(),
    KafkaPython(),
    Aiokafka(),
    Kcat(),
    Tidemark(),
    TidemarkGrpc(),
)
CLIENTS = {client.name: client for client in _ALL}
KAFKA_CLIENTS = tuple(name for name in CLIENTS if name != TidemarkGrpc.name)


def logged_in(login: Login) -> dict[str, Client]:
    """Every client over Kafka's protocol, with a login."""
    every: tuple[Client, ...] = (
        Confluent(login),
        KafkaPython(login),
        Aiokafka(login),
        Kcat(login),
        Tidemark(login),
    )
    return {client.name: client for client in every if is_installed(client.name)}


def sample(client: Client, partition: int) -> list[Message]:
    """Everything that a record may be: null, empty, one byte, binary, large, with headers."""
    noise = random.Random(partition)
    one_of_each = [
        Message(b"key", b"value"),
        Message(None, b"no key"),
        Message(b"tombstone", None),
        Message(None, None),
        Message(b"empty value", b""),
        Message(b"k", b"1"),
        Message(bytes(range(256)), bytes(range(256))),
        Message(b"noise", noise.randbytes(100_000)),
        Message(b"same", b"s" * 300_000),
        Message("ключ".encode(), "значение".encode()),
        Message(b"h", b"headers", (("a", b"1"), ("a", b"2"), ("é", b"\xc3\xa9"))),
    ]
    if client.writes_null_headers:
        one_of_each.append(Message(b"h", b"null header", (("a", b""), ("none", None))))
    many = [Message(b"k%d" % number, b"value %d" % number) for number in range(40)]
    return [
        message._replace(partition=partition)
        for message in one_of_each + many
        if client.writes_empty_records or (message.key, message.value) != (None, None)
    ]


def is_installed(name: str) -> bool:
    """Whether the client's command is on this machine; the others are libraries."""
    return name != Kcat.name or shutil.which("kcat") is not None


def installed(name: str) -> Client:
    """A client by name; skips the test where its command is not on this machine."""
    if not is_installed(name):
        pytest.skip(f"{name} is not installed")
    return CLIENTS[name]
