"""A cluster whose broker has an authorizer and a listener with SASL."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import scramp  # type: ignore[import-untyped]
from e2e.acl_rows import Need, Place
from e2e.clusters import START_SECONDS, Cluster
from e2e.kafka_wire import Wire
from e2e.wire import ask
from free_ports import free_port
from tidemark.cli.dev.layout import HOST, Layout
from tidemark.kafka.apis import ApiKey
from tidemark.kafka.long_tail import Struct
from tidemark.model.acls import Permission
from tidemark.model.errors import ErrorCode

MECHANISM = "SCRAM-SHA-256"
SALT = bytes(range(16))
ITERATIONS = 4_096
SUPER_USER = "root"


ANY_NUMBER = "1000000"
"""Failed logins of an address that delay none, where a test has many of them."""


@contextmanager
def secured_cluster(
    directory: Path,
    *,
    txn_coordinators: int = 0,
    share_coordinators: int = 0,
    mutual: Mapping[str, str] | None = None,
    grpc: Mapping[str, str] | None = None,
    everywhere: Mapping[str, str] | None = None,
    broker: Mapping[str, str] | None = None,
) -> Iterator["Secured"]:
    """One broker, whose super user has no password yet. ``mutual``: options of a listener MUTUAL
    with mutual TLS; ``grpc``: of a listener GRPC with logins; ``everywhere``: options of
    controller and broker; ``broker``: options of the broker.
    """
    layout = Layout.on_free_ports(
        directory,
        brokers=1,
        controllers=1,
        txn_coordinators=txn_coordinators,
        share_coordinators=share_coordinators,
    )
    own, safe = layout.member("broker-1").ports, free_port()
    ports = {"CLIENT": own["client"], "INTERNAL": own["internal"], "SAFE": safe}
    keys = {
        "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in ports.items()),
        "listener.security.protocol.map": "SAFE:SASL_PLAINTEXT",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:{SUPER_USER}",
        "connection.failed.authentication.delay.ms": "0",
        "failed.authentication.burst.per.ip": ANY_NUMBER,
        **(broker or {}),
    }
    if mutual is not None:
        ports["MUTUAL"] = free_port()
        keys["listeners"] += f",MUTUAL://{HOST}:{ports['MUTUAL']}"
        keys["listener.security.protocol.map"] += ",MUTUAL:SSL"
        keys |= {f"listener.name.mutual.{name}": value for name, value in mutual.items()}
    if grpc is not None:
        ports["GRPC"] = free_port()
        keys["listeners"] += f",GRPC://{HOST}:{ports['GRPC']}"
        keys["listener.security.protocol.map"] += ",GRPC:SASL_SSL"
        keys |= {f"listener.name.grpc.{name}": value for name, value in grpc.items()}
    both = everywhere or {}
    cluster = Cluster(layout, overrides={"broker": {**keys, **both}, "controller": both})
    try:
        cluster.start(START_SECONDS)
        yield Secured(
            cluster,
            safe,
            ports.get("MUTUAL", 0),
            ports.get("GRPC", 0),
            Path((grpc or {}).get("ssl.ca.location", "")),
        )
    finally:
        cluster.end()


class Secured:
    """One broker with an authorizer. The password of a user is its name."""

    def __init__(self, cluster: Cluster, safe: int, mutual: int, grpc: int, ca: Path) -> None:
        self.cluster = cluster
        self.safe = safe
        self.mutual = mutual
        self.grpc = grpc
        self.ca = ca
        """Authority of the listener GRPC."""
        self.internal = cluster.layout.member("broker-1").ports["internal"]
        self.topic_ids: dict[str, bytes] = {}

    def place(self, topic: str) -> Place:
        return Place(topic, self.topic_ids.get(topic, bytes(16)))

    def add_users(self, names: Iterable[str]) -> None:
        def upsertion(name: str) -> dict[str, object]:
            salted = hashlib.pbkdf2_hmac("sha256", name.encode(), SALT, ITERATIONS)
            kept = {"iterations": ITERATIONS, "salt": SALT, "salted_password": salted}
            return {"name": name, "mechanism": 1, **kept}

        with Wire(self.internal) as wire:
            fields = {"deletions": [], "upsertions": [upsertion(name) for name in names]}
            answer = ask(wire, ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, fields)
            assert codes(answer) == {0}

    def add_acls(self, acls: Iterable[tuple[str, Need, Permission]]) -> None:
        creations = [
            {
                "resource_type": int(need.resource.resource_type),
                "resource_name": need.resource.name,
                "principal": f"User:{user}",
                "host": "*",
                "operation": int(need.operation),
                "permission_type": int(permission),
            }
            for user, need, permission in acls
        ]
        with Wire(self.internal) as wire:
            assert codes(ask(wire, ApiKey.CREATE_ACLS, 3, {"creations": creations})) == {0}

    @contextmanager
    def login(self, user: str, password: str | None = None) -> Iterator[Wire]:
        """A connection of a user, whose login may have failed."""
        client = scramp.ScramClient([MECHANISM], user, user if password is None else password)
        with Wire(self.safe) as wire:
            ask(wire, ApiKey.SASL_HANDSHAKE, 1, {"mechanism": MECHANISM})
            first = {"auth_bytes": client.get_client_first().encode()}
            answer = ask(wire, ApiKey.SASL_AUTHENTICATE, 2, first)
            client.set_server_first(answer.auth_bytes.decode())
            final = {"auth_bytes": client.get_client_final().encode()}
            assert codes(ask(wire, ApiKey.SASL_AUTHENTICATE, 2, final)) <= {
                0,
                ErrorCode.SASL_AUTHENTICATION_FAILED,
            }
            yield wire


def codes(answer: Any) -> set[int]:
    """All error codes of an answer."""
    if isinstance(answer, Struct):
        fields = vars(answer)
    elif hasattr(answer, "_asdict"):
        fields = answer._asdict()
    elif isinstance(answer, list | tuple):
        return {code for one in answer for code in codes(one)}
    else:
        return set()
    own = {int(value) for name, value in fields.items() if name.endswith("error_code")}
    return own.union(*(codes(value) for value in fields.values()))
