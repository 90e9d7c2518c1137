"""Layout of an embedded cluster: its processes, their ports and directories."""

import fcntl
import importlib.util
import json
import os
import random
import socket
import tempfile
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from tidemark.cli.failure import CommandError
from tidemark.runtime.exit_codes import ExitCode

HOST: Final = "127.0.0.1"
NODES_MAX: Final = 9
BROKER_ID_MAX: Final = 999
TXN_COORDINATOR: Final = "txn-coordinator"
SHARE_COORDINATOR: Final = "share-coordinator"
COORDINATORS: Final = (TXN_COORDINATOR, SHARE_COORDINATOR)
"""Services that keep everything on the brokers."""
PROMETHEUS: Final = "prometheus"
_FORMAT: Final = 1
# Below the range that the kernel assigns to outgoing connections.
_FREE_PORTS: Final = (20_000, 32_000)
_PORTS_IN_BLOCK: Final = 140
_RESERVED_BLOCKS_MAX: Final = 8
_reserved_blocks: Final[deque[int]] = deque()
"""Descriptors of the lock files of the newest blocks that free_port_block returned."""


@dataclass(frozen=True, slots=True)
class Ports:
    """First port of each kind; that of the second broker is one higher, and so on. ``from_base``
    places them ten apart in this order, so new kinds are added at the end.
    """

    zookeeper: int = 2181
    controller_grpc: int = 19_090
    rest: int = 8080
    client: int = 9092
    internal: int = 9192
    grpc: int = 9292
    ops: int = 9392
    txn_grpc: int = 19_190
    txn_ops: int = 9492
    share_grpc: int = 19_290
    share_ops: int = 9592
    prometheus: int = 9090
    mutual: int = 9692
    grpc_client: int = 9792

    @classmethod
    def from_base(cls, base: int) -> "Ports":
        """Return ports that are all below ``base + 140``."""
        kinds = cls.__dataclass_fields__
        return cls(**{kind: base + 10 * place for place, kind in enumerate(kinds)})

    def changed(self, changes: Mapping[str, int]) -> "Ports":
        """Return the ports with some kinds changed. Raises CommandError for an unknown kind."""
        known = asdict(self)
        for kind in changes:
            if kind not in known:
                raise CommandError(
                    f"there is no port called {kind!r}",
                    hint=f"the kinds are: {', '.join(known)}",
                    code=ExitCode.USAGE,
                )
        return Ports(**{**known, **changes})


@dataclass(frozen=True, slots=True)
class Shape:
    """Content of ``cluster.json``, with which every command finds the same cluster."""

    brokers: int = 3
    controllers: int = 2
    ports: Ports = field(default_factory=Ports)
    txn_coordinators: int = 0
    share_coordinators: int = 0
    has_prometheus: bool = False
    has_supervisors: bool = True
    """True if each service runs as the child of a supervisor (tidemark.runtime.supervisor)."""
    first_broker_id: int = 1
    is_secure: bool = False
    """True if clients log in over TLS and ACLs decide (tidemark.cli.dev.secure)."""

    def __post_init__(self) -> None:
        if not 0 <= self.first_broker_id <= BROKER_ID_MAX:
            raise CommandError(
                f"the first broker id is 0 to {BROKER_ID_MAX}, not {self.first_broker_id}",
                code=ExitCode.USAGE,
            )
        least_counts = {"brokers": 1, "controllers": 1}
        for name in ("brokers", "controllers", "txn_coordinators", "share_coordinators"):
            least = least_counts.get(name, 0)
            if not least <= getattr(self, name) <= NODES_MAX:
                words = name.replace("_", "-")
                raise CommandError(
                    f"an embedded cluster has {least} to {NODES_MAX} {words}", code=ExitCode.USAGE
                )

    @classmethod
    def default(cls) -> "Shape":
        """Return the default shape, with the coordinator services that are installed."""
        counts = coordinators_default()
        return cls(
            txn_coordinators=counts["txn_coordinators"],
            share_coordinators=counts["share_coordinators"],
        )

    def write(self, path: Path) -> None:
        """Store the shape for the next command."""
        content = {"format": _FORMAT, **asdict(self)}
        path.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> "Shape | None":
        """Return the stored shape; None if there is none. Raises CommandError."""
        try:
            content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
            if content.pop("format") != _FORMAT:
                raise ValueError("written by a newer release")
            ports = Ports(**content["ports"])
            return cls(**{**coordinators_default(), **content, "ports": ports})
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CommandError(
                f"cannot read {path}: {error}",
                hint="stop the cluster's processes, then remove that file",
                code=ExitCode.DATA,
            ) from None


@dataclass(frozen=True, slots=True)
class Member:
    """One process of the cluster. ``ports`` maps the use of each port to its number."""

    name: str
    kind: str  # zookeeper, controller, broker, one of COORDINATORS, or PROMETHEUS
    number: int
    ports: Mapping[str, int]

    @property
    def module(self) -> str:
        """Module that Python runs."""
        return module_of(self.kind)


def module_of(kind: str) -> str:
    """Return the package of a kind of process."""
    return kind.replace("-", "_")


@dataclass(frozen=True, slots=True)
class Layout:
    """Files and ports of a cluster."""

    directory: Path
    shape: Shape = field(default_factory=Shape)

    def __post_init__(self) -> None:
        # The processes get absolute paths: they need not share this working directory.
        object.__setattr__(self, "directory", self.directory.absolute())

    @classmethod
    def on_free_ports(
        cls,
        directory: Path,
        *,
        brokers: int = 3,
        controllers: int = 2,
        txn_coordinators: int = 0,
        share_coordinators: int = 0,
        has_prometheus: bool = False,
        is_secure: bool = False,
    ) -> "Layout":
        """Return a layout with a block of free ports, for tests."""
        ports = Ports.from_base(free_port_block())
        shape = Shape(
            brokers,
            controllers,
            ports,
            txn_coordinators,
            share_coordinators,
            has_prometheus,
            is_secure=is_secure,
        )
        return cls(directory, shape)

    @property
    def shape_path(self) -> Path:
        """File with the shape."""
        return self.directory / "cluster.json"

    @property
    def run_directory(self) -> Path:
        """Directory of process files and configurations."""
        return self.directory / "run"

    def log_path(self, name: str) -> Path:
        """Return the file with a process's output."""
        return self.directory / "logs" / f"{name}.log"

    def data_path(self, name: str) -> Path:
        """Return the directory of a process's data."""
        return self.directory / "data" / name

    @property
    def bootstrap(self) -> str:
        """Kafka addresses of the brokers, for clients."""
        return self._of_brokers(self.shape.ports.client)

    @property
    def mutual_bootstrap(self) -> str:
        """Kafka addresses at which clients of a secure cluster show a certificate."""
        return self._of_brokers(self.shape.ports.mutual)

    @property
    def grpc_bootstrap(self) -> str:
        """gRPC addresses of the brokers."""
        return self._of_brokers(self.shape.ports.grpc)

    @property
    def grpc_client_bootstrap(self) -> str:
        """gRPC addresses at which clients of a secure cluster log in."""
        return self._of_brokers(self.shape.ports.grpc_client)

    @property
    def grpc_for_clients(self) -> str:
        """gRPC addresses for clients: of a secure cluster, the listener with logins."""
        return self.grpc_client_bootstrap if self.shape.is_secure else self.grpc_bootstrap

    def _of_brokers(self, first_port: int) -> str:
        ports = range(first_port, first_port + self.shape.brokers)
        return ",".join(f"{HOST}:{port}" for port in ports)

    @property
    def rest_addresses(self) -> str:
        """REST addresses of the controllers; those of a secure cluster have TLS."""
        members = (one for one in self.members() if one.kind == "controller")
        return ",".join(filter(None, map(self.http_address, members)))

    def http_address(self, member: Member) -> str | None:
        """Return the address of a service's pages; None for what is no service of Tidemark."""
        if "rest" in member.ports:
            scheme = "https://" if self.shape.is_secure else ""
            return f"{scheme}{HOST}:{member.ports['rest']}"
        return f"{HOST}:{member.ports['ops']}" if "ops" in member.ports else None

    @property
    def zookeeper_connect(self) -> str:
        """Address of ZooKeeper with the cluster's chroot."""
        return f"{HOST}:{self.shape.ports.zookeeper}/tidemark"

    def members(self) -> tuple[Member, ...]:
        """Return every process, in the order in which they start."""
        return (
            self._zookeeper(),
            *self._controllers(),
            *self._brokers(),
            *self._coordinators(),
            *self._prometheus(),
        )

    def member(self, name: str) -> Member:
        """Return one process by name. Raises CommandError if there is none."""
        found = next((member for member in self.members() if member.name == name), None)
        if found is None:
            names = ", ".join(member.name for member in self.members())
            raise CommandError(f"there is no process {name!r}", hint=f"there are: {names}")
        return found

    def _zookeeper(self) -> Member:
        return Member("zookeeper", "zookeeper", 1, {"client": self.shape.ports.zookeeper})

    def _controllers(self) -> Iterator[Member]:
        ports = self.shape.ports
        for place in range(self.shape.controllers):
            used = {
                "grpc": ports.controller_grpc + place,
                "rest": ports.rest + place,
            }
            yield Member(f"controller-{place + 1}", "controller", place + 1, used)

    def _brokers(self) -> Iterator[Member]:
        ports = self.shape.ports
        for place in range(self.shape.brokers):
            used = {
                "client": ports.client + place,
                "internal": ports.internal + place,
                "grpc": ports.grpc + place,
                "ops": ports.ops + place,
            }
            if self.shape.is_secure:
                used["mutual"] = ports.mutual + place
                used["grpc_client"] = ports.grpc_client + place
            number = self.shape.first_broker_id + place
            yield Member(f"broker-{number}", "broker", number, used)

    def _prometheus(self) -> Iterator[Member]:
        if self.shape.has_prometheus:
            yield Member(PROMETHEUS, PROMETHEUS, 1, {"web": self.shape.ports.prometheus})

    def _coordinators(self) -> Iterator[Member]:
        shape, ports = self.shape, self.shape.ports
        for kind, count, grpc, ops in (
            (TXN_COORDINATOR, shape.txn_coordinators, ports.txn_grpc, ports.txn_ops),
            (SHARE_COORDINATOR, shape.share_coordinators, ports.share_grpc, ports.share_ops),
        ):
            for place in range(count):
                used = {"grpc": grpc + place, "ops": ops + place}
                yield Member(f"{kind}-{place + 1}", kind, place + 1, used)


def coordinators_default() -> dict[str, int]:
    """Return the default count of each kind of coordinator, as fields of Shape: 1 if the service is
    installed, else 0. Brokers and controllers work without it.
    """
    return {
        f"{module}s": int(importlib.util.find_spec(module) is not None)
        for module in map(module_of, COORDINATORS)
    }


def port_is_free(port: int) -> bool:
    """True if a server could listen there on loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((HOST, port))
        except OSError:
            return False
    return True


def free_port_block() -> int:
    """Return the first of 140 free ports in a row. Raises CommandError if there are none.

    No other process of this user gets the block from this function while it is one of the newest
    that this process got: its servers may not listen yet, or may be restarting.
    """
    first, last = _FREE_PORTS
    blocks = list(range(first, last, _PORTS_IN_BLOCK))
    random.SystemRandom().shuffle(blocks)
    for base in blocks:
        lock = _locked_block(base)
        if lock is None:
            continue
        if all(port_is_free(port) for port in range(base, base + _PORTS_IN_BLOCK)):
            _reserved_blocks.append(lock)
            if len(_reserved_blocks) > _RESERVED_BLOCKS_MAX:
                os.close(_reserved_blocks.popleft())
            return base
        os.close(lock)
    raise CommandError("no free block of ports on loopback", code=ExitCode.UNAVAILABLE)


def _locked_block(base: int) -> int | None:
    """Return a descriptor of the locked file of a block, or None if the block is reserved."""
    directory = Path(tempfile.gettempdir(), f"tidemark-ports-{os.getuid()}")
    directory.mkdir(mode=0o700, exist_ok=True)
    lock = os.open(directory / f"{base}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return None
    return lock
