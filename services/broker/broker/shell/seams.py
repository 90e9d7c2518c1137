"""Seams: everything that ties a broker to its machine, in one place.

``machine_seams`` returns those of the real machine; the simulator gives the same broker simulated
ones. The event loop, which opens the listening sockets and runs threads, is a seam that is not
named here.
"""

import random
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol

from tidemark.protocol.audit import NoteLogin
from tidemark.runtime.channel_pool import ChannelPool
from tidemark.runtime.clock import Clock
from tidemark.runtime.controller_client import ControllerClient
from tidemark.runtime.event_loop import keep_what_is_loaded
from tidemark.runtime.os_disk import OsDisk
from tidemark.runtime.peers import FindsPeers
from tidemark.runtime.server import make_client_server, make_grpc_server
from tidemark.runtime.service_config import HostPort
from tidemark.runtime.threads import started_threads
from tidemark.runtime.tls import ChannelTls, ServerTls, TlsSettings
from tidemark.runtime.worker_pool import WorkerPool
from tidemark.runtime.zk_session import ZkSession
from tidemark.storage.disk import Disk

from broker.shell.replication.leader_connection import Connect
from broker.shell.replication.leader_stream import connect_with


class ServesGrpc(Protocol):
    """A gRPC server that listens."""

    @property
    def address(self) -> object:
        """Address as ``host:port``."""

    async def set_serving(self, *, serving: bool) -> None:
        """Set the answer of the health service."""


class MakeGrpcServer(Protocol):
    """``make_grpc_server``, as far as a broker uses it."""

    def __call__(
        self,
        listen: str,
        service_names: Sequence[str],
        register: Callable[[Any], None],
        *,
        note_login: NoteLogin = ...,
    ) -> AbstractAsyncContextManager[ServesGrpc]:
        """Make a server that serves within its context; ``register`` adds the servicers,
        ``note_login`` notes logins of clients with certificates.
        """


class ServesClients(ServesGrpc, Protocol):
    """A gRPC server for clients."""

    @property
    def address(self) -> HostPort:
        """Address with the port that is bound."""


class MakeClientServer(Protocol):
    """``make_client_server``."""

    def __call__(
        self,
        listen: str,
        service_names: Sequence[str],
        register: Callable[[Any], None],
        *,
        tls: ServerTls | None,
        peers: FindsPeers,
    ) -> AbstractAsyncContextManager[ServesClients]:
        """Make the server of the listener GRPC. Raises TlsError."""


class MakeWorkers(Protocol):
    """``WorkerPool``, as far as a broker uses it."""

    def __call__(
        self,
        *,
        workers: int = ...,
        jobs_max: int = ...,
        niceness: int = ...,
        deadline_s: float | None = ...,
        memory_max_bytes: int | None = ...,
    ) -> WorkerPool:
        """Make a pool whose workers start with its first jobs."""


@dataclass(frozen=True)
class Seams:
    """Machine, other services and chance, as one broker reaches them."""

    clock: Clock
    dice: random.Random
    """Ids of fetch sessions and of the incarnation, and the spread of delays between attempts."""
    session: ZkSession
    """Not started yet; the broker starts and stops it."""
    controller: ControllerClient
    channels: ChannelPool
    """Channels to the coordinators of transactions and of share groups, and to other brokers."""
    connect_leader: Connect
    make_grpc_server: MakeGrpcServer
    make_workers: MakeWorkers
    make_threads: Callable[[int, str], ThreadPoolExecutor]
    """Makes a pool of threads, given their number and name."""
    opener: Callable[[Disk], Callable[[], Disk]]
    """Returns, for a disk of the broker, the function with which a worker process opens it
    again.
    """
    after_load: Callable[[], None]
    """Called once, when the first image has been taken and before clients are served."""
    make_client_server: MakeClientServer = make_client_server


def machine_seams(
    session: ZkSession,
    controller: ControllerClient,
    *,
    clock: Clock | None = None,
    tls: ChannelTls | None = None,
    make_server: MakeGrpcServer = make_grpc_server,
    leader_tls: TlsSettings | None = None,
) -> Seams:
    """Return the seams of the real machine. Without ``tls``, gRPC channels are in plain text;
    ``leader_tls`` is for leaders whose listener INTERNAL has TLS.
    """
    return Seams(
        clock=clock or Clock(),
        dice=random.SystemRandom(),
        session=session,
        controller=controller,
        channels=ChannelPool(tls),
        connect_leader=connect_with(leader_tls),
        make_grpc_server=make_server,
        make_workers=WorkerPool,
        make_threads=started_threads,
        opener=_opener,
        after_load=keep_what_is_loaded,
    )


def _opener(disk: Disk) -> Callable[[], Disk]:
    assert isinstance(disk, OsDisk), "another process opens a directory, by its path"
    return partial(OsDisk, disk.root)
