"""What security costs: produce and fetch through each kind of listener beside a plain one, logins a
second, and decisions among 100,000 ACLs.
"""

import asyncio
import statistics
import time
import timeit
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from bench.broker import BrokerUnderTest
from bench.processes import cpu_seconds
from bench.report import Row
from bench.secure_flood import bench_flood
from confluent_kafka import Consumer, Producer, TopicPartition
from e2e.certificates import Authority, Files
from free_ports import free_port
from tidemark.cli.dev.cluster import DevCluster
from tidemark.cli.dev.layout import HOST, Layout
from tidemark.client import Admin
from tidemark.client.config import Address, ClientConfig
from tidemark.client.wire.connection import BrokerConnection
from tidemark.model.acls import AclEntry, Acls, PatternType, Permission, ResourcePattern
from tidemark.model.authorization import Operation, Requester, Resource, ResourceType
from tidemark.protocol.acl_authorizer import AclAuthorizer, AclPolicy

ACLS: Final = 100_000
QUESTIONS: Final = 10_000
VALUE: Final = bytes(range(256)) * 4
LOGINS: Final = 400
LOGINS_AT_ONCE: Final = 8
USER, PASSWORD = "alice", "pencil"
_US: Final = 1e6
_MB: Final = 1e6
PROTOCOLS: Final = {"CLIENT": "plaintext", "SAFE": "sasl_plaintext", "TLS": "ssl", "MUTUAL": "ssl"}
NAMES: Final = {
    "CLIENT": "plain",
    "SAFE": "SASL_PLAINTEXT, SCRAM-SHA-512",
    "TLS": "TLS",
    "MUTUAL": "mutual TLS",
}
_MECHANISMS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")


def bench_secure(directory: Path, *, total: int, runs: int) -> list[Row]:
    """All rows, the listeners measured in turns."""
    rows = bench_acls(runs)
    with doors(directory) as (one, ports, files):
        rows += bench_listeners(one, ports, files, total=total, runs=runs)
        rows += [bench_logins(one, ports["LOGIN"], files, mechanism) for mechanism in _MECHANISMS]
        wrong = login_of(files, "PLAIN", "wrong")
        rows += bench_flood(one, ports["CLIENT"], ports["LOGIN"], wrong, runs=runs)
    return rows


# -- decisions


def bench_acls(runs: int) -> list[Row]:
    """Questions that were not asked before, and one that was."""
    tracemalloc.start()
    authorizer = AclAuthorizer(AclPolicy(), many_acls())
    held = tracemalloc.get_traced_memory()[0]
    tracemalloc.stop()
    questions = [
        (Requester(f"User:u{number % 1_000}", HOST), Resource(ResourceType.TOPIC, f"t-{number}-x"))
        for number in range(QUESTIONS)
    ]

    def ask_all() -> None:
        for requester, resource in questions:
            authorizer.authorize(requester, Operation.WRITE, resource)

    def ask_anew() -> None:
        authorizer.replace({})
        ask_all()

    rows = []
    for name, ask in (("asked for the first time", ask_anew), ("asked before", ask_all)):
        spent = timeit.repeat(ask, timer=time.process_time, number=1, repeat=max(3, runs))
        cost_us = min(spent) * _US / QUESTIONS
        row = Row(f"authorizer: {ACLS} ACLs", name, bound="< 10 us", held=cost_us < 10)
        row.extra = {"cpu_us_per_decision": cost_us, "memory_mb": held / _MB}
        rows.append(row)
    return rows


def many_acls() -> Acls:
    """Half of literal, half of prefixed patterns of several lengths, of a thousand users."""
    entries = {
        number: frozenset(
            {AclEntry(f"User:u{number}", "*", int(Operation.WRITE), Permission.ALLOW)}
        )
        for number in range(1_000)
    }
    kinds = (PatternType.LITERAL, PatternType.PREFIXED)
    return {
        ResourcePattern(ResourceType.TOPIC, f"t-{number}", kinds[number % 2]): entries[
            number % 1_000
        ]
        for number in range(ACLS)
    }


# -- listeners


@contextmanager
def doors(directory: Path) -> Iterator[tuple[BrokerUnderTest, dict[str, int], Files]]:
    """A broker with a listener of each kind, and one user."""
    directory.mkdir()
    authority = Authority(directory / "authority")
    layout = Layout.on_free_ports(directory / "cluster", brokers=1, controllers=1)
    own = layout.member("broker-1").ports
    ports = {name: free_port() for name in ("SAFE", "TLS", "MUTUAL", "LOGIN")}
    ports |= {"CLIENT": own["client"], "INTERNAL": own["internal"]}
    keys: dict[str, object] = {
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": "SAFE:SASL_PLAINTEXT,TLS:SSL,MUTUAL:SSL,LOGIN:SASL_SSL",
        "listener.name.mutual.ssl.client.auth": "required",
        "sasl.enabled.mechanisms": ",".join(_MECHANISMS),
        **authority.server,
    }
    cluster = DevCluster(layout, overrides={"broker": keys})
    try:
        cluster.start()
        asyncio.run(_add_user(f"{HOST}:{ports['CLIENT']}"))
        yield BrokerUnderTest(cluster), ports, authority.client(USER)
    finally:
        cluster.stop()


async def _add_user(address: str) -> None:
    async with Admin(address) as admin:
        await admin.set_passwords({USER: PASSWORD})


def bench_listeners(
    one: BrokerUnderTest, ports: dict[str, int], files: Files, *, total: int, runs: int
) -> list[Row]:
    """Produce and fetch with librdkafka, the broker's CPU by GB beside that of the plain one."""
    spent: dict[tuple[str, str], list[tuple[float, float]]] = {}
    for number in range(runs):
        for door in NAMES:
            topic, client = f"s-{number}-{door.lower()}", settings_of(door, ports[door], files)
            one.create_topic(topic)
            for what, work in (("produce", produce), ("fetch", fetch)):
                before, began_s = cpu_seconds(one.pid), time.monotonic()
                work(client, topic, total // len(VALUE))
                cost = cpu_seconds(one.pid) - before, time.monotonic() - began_s
                spent.setdefault((what, door), []).append(cost)
            one.delete_topic(topic)
    return [_row(what, door, spent, total) for what in ("produce", "fetch") for door in NAMES]


def _row(
    what: str, door: str, spent: dict[tuple[str, str], list[tuple[float, float]]], total: int
) -> Row:
    cpu_s, floor_s = (
        statistics.median(cpu for cpu, _ in spent[what, which]) for which in (door, "CLIENT")
    )
    seconds = statistics.median(each for _, each in spent[what, door])
    return Row(
        f"secured listeners: {what}",
        NAMES[door],
        mb_s=total / _MB / seconds,
        cpu_s_per_gb=cpu_s / total * 1e9,
        floor_cpu_s_per_gb=floor_s / total * 1e9,
        ratio=cpu_s / max(floor_s, 0.01),
    )


def settings_of(door: str, port: int, files: Files) -> dict[str, Any]:
    """librdkafka's configuration."""
    client: dict[str, Any] = {
        "bootstrap.servers": f"{HOST}:{port}",
        "security.protocol": PROTOCOLS[door],
        "batch.size": 1_000_000,
        "linger.ms": 5,
    }
    if door == "SAFE":
        client |= {"sasl.mechanism": "SCRAM-SHA-512", "sasl.username": USER}
        client |= {"sasl.password": PASSWORD}
    elif door == "MUTUAL":
        client |= files
    elif door == "TLS":
        client |= {"ssl.ca.location": files["ssl.ca.location"]}
    return client


def produce(client: dict[str, Any], topic: str, count: int) -> None:
    """Send so many records, and wait for them."""
    producer = Producer(client)
    for _ in range(count):
        while True:
            try:
                producer.produce(topic, VALUE)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0, "not all were acknowledged"


def fetch(client: dict[str, Any], topic: str, count: int) -> None:
    """Read so many records."""
    names = {key: value for key, value in client.items() if key not in ("batch.size", "linger.ms")}
    consumer = Consumer({**names, "group.id": topic, "enable.auto.commit": False})
    consumer.assign([TopicPartition(topic, 0, 0)])
    left = count
    while left > 0:
        left -= len(consumer.consume(min(left, 10_000), timeout=5))
    consumer.close()


# -- logins


def login_of(files: Files, mechanism: str, password: str) -> ClientConfig:
    """Return the native client's configuration."""
    return ClientConfig(
        security_protocol="SASL_SSL",
        sasl_mechanism=mechanism,
        sasl_username=USER,
        sasl_password=password,
        ssl_ca_location=files["ssl.ca.location"],
    )


def bench_logins(one: BrokerUnderTest, port: int, files: Files, mechanism: str) -> Row:
    """Connections with TLS and a login, several at a time, with the native client."""
    config = login_of(files, mechanism, PASSWORD)

    async def client() -> None:
        for _ in range(LOGINS // LOGINS_AT_ONCE):
            (await BrokerConnection.open(Address(HOST, port), config)).close()

    async def all_clients() -> None:
        await asyncio.gather(*(client() for _ in range(LOGINS_AT_ONCE)))

    before, began_s = cpu_seconds(one.pid), time.monotonic()
    asyncio.run(all_clients())
    seconds, cpu_s = time.monotonic() - began_s, cpu_seconds(one.pid) - before
    row = Row("logins over TLS", mechanism, requests_s=LOGINS / seconds)
    row.extra = {"cpu_ms_per_login": cpu_s * 1_000 / LOGINS}
    return row
