"""Test of a release: a transaction, an acknowledgement by a share group, records over gRPC, and
REST.

Clients take the login of the command line: TIDEMARK_SASL_USERNAME and others.
"""

import base64
import json
import os
import ssl
import sys
import urllib.error
import urllib.request

from tidemark.cli.security import security
from tidemark.client import AlterConfig, ConfigResource, sync

TIMEOUT_S = 60
UNAUTHORIZED = 401
BOOTSTRAP, TOPIC = os.environ["TIDEMARK_BOOTSTRAP"], os.environ["TOPIC"]
LOGIN = security()


def transact() -> None:
    """Read what a transaction committed, and nothing of one that was aborted."""
    with sync.TransactionalProducer(BOOTSTRAP, transactional_id=TOPIC, **LOGIN) as producer:
        producer.init()
        producer.begin()
        producer.send(TOPIC, b"aborted")
        producer.abort()
        with producer.transaction():
            producer.send(TOPIC, b"committed")
    with sync.Consumer(
        BOOTSTRAP, isolation_level="read_committed", auto_offset_reset="earliest", **LOGIN
    ) as consumer:
        consumer.assign([(TOPIC, 0)])
        values: list[bytes | None] = []
        while b"committed" not in values:
            values += [record.value for record in consumer.poll(10, timeout_ms=1_000)]
    assert b"aborted" not in values, values


def acknowledge() -> None:
    """Accept a record as a member of a share group."""
    with sync.Admin(BOOTSTRAP, **LOGIN) as admin:
        earliest = AlterConfig("share.auto.offset.reset", "earliest")
        admin.alter_configs({ConfigResource("group", TOPIC): [earliest]})
    with sync.ShareConsumer(
        BOOTSTRAP, group_id=TOPIC, share_acknowledgement_mode="explicit", **LOGIN
    ) as consumer:
        consumer.subscribe([TOPIC])
        while not (records := consumer.poll()):
            pass
        for record in records:
            consumer.acknowledge(record, "accept")
        failed = {at: error for at, error in consumer.commit_sync().items() if error}
    assert not failed, failed


def call_grpc() -> None:
    """Produce and consume a record over gRPC, with the same user if there are logins."""
    tls = {"ssl_ca_location": LOGIN["ssl_ca_location"]} if "ssl_ca_location" in LOGIN else {}
    protocol = LOGIN.get("security_protocol", "PLAINTEXT")
    settings = {"transport": "grpc", "security_protocol": protocol, **tls}
    if "sasl_username" in LOGIN:
        # The password goes with each call, since SCRAM is an exchange of messages.
        settings |= {"sasl_mechanism": "PLAIN", "sasl_username": LOGIN["sasl_username"]}
        settings |= {"sasl_password": LOGIN["sasl_password"]}
    servers = os.environ["GRPC_CLIENT_BOOTSTRAP"]
    with sync.Producer(servers, **settings) as producer:
        sent = producer.send(TOPIC, b"over gRPC", partition=0)
    with sync.Consumer(servers, **settings) as consumer:
        consumer.assign([(TOPIC, 0)])
        consumer.seek((TOPIC, 0), sent.offset)
        while not (records := consumer.poll(1, timeout_ms=1_000)):
            pass
    assert records[0].value == b"over gRPC", records


def get(path: str, headers: dict[str, str]) -> dict[str, list[dict[str, str]]]:
    """Get the answer of REST to a path."""
    request = urllib.request.Request(os.environ["TIDEMARK_REST"] + path, headers=headers)
    authority = LOGIN.get("ssl_ca_location")
    trusted = ssl.create_default_context(cafile=authority) if authority else None
    with urllib.request.urlopen(request, timeout=TIMEOUT_S, context=trusted) as answer:
        found: dict[str, list[dict[str, str]]] = json.load(answer)
    return found


def status(headers: dict[str, str]) -> int:
    """Status with which REST answers a request for the cluster."""
    try:
        get("/v3/clusters", headers)
    except urllib.error.HTTPError as refused:
        return refused.code
    return 200


def ask_rest() -> None:
    """Get the cluster by REST: with a login if there are logins, and then not without one."""
    headers = {}
    if "sasl_username" in LOGIN:
        login = f"{LOGIN['sasl_username']}:{LOGIN['sasl_password']}"
        headers["Authorization"] = f"Basic {base64.b64encode(login.encode()).decode()}"
        assert status({}) == status({"Authorization": "Bearer none"}) == UNAUTHORIZED
    found = get("/v3/clusters", headers)
    assert found["data"][0]["cluster_id"], found


TESTS = {
    "transaction": transact,
    "share group": acknowledge,
    "gRPC": call_grpc,
    "REST": ask_rest,
}
for name in os.environ["TESTS"].split(","):
    TESTS[name]()
    sys.stdout.write(f"{name}: works\n")
