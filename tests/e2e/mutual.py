"""A cluster whose processes meet under mutual TLS, with a ZooKeeper of TLS and ACLs."""

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import trustme
from cryptography.hazmat.primitives import serialization
from e2e.clusters import START_SECONDS, Cluster
from free_ports import free_port
from kazoo.client import KazooClient
from tidemark.cli.dev.cluster import Config
from tidemark.cli.dev.layout import HOST, Layout, Member
from tidemark.runtime.zk_access import ZkAccess

NODE = "node"
CHROOT = "/tidemark"
DIGEST = "tidemark:of-the-cluster"
FIRST_NAME = "RULE:^CN=([^,]+),.*$/$1/"
KINDS = ("broker", "controller", "txn-coordinator", "share-coordinator")


class Identity:
    """PEM files of one process or client. ``renew`` replaces the certificate and its key."""

    def __init__(self, directory: Path, authority: trustme.CA, ca: Path, name: str) -> None:
        self._authority = authority
        self._name = name
        self.ca = str(ca)
        self.certificate = directory / f"{name}.crt"
        self.key = directory / f"{name}.key"
        self.renew()

    def renew(self) -> None:
        """Write a new certificate with its key, as one file after the other."""
        issued = self._authority.issue_cert(
            HOST, common_name=self._name, organization_name="Acme, Inc."
        )
        key = serialization.load_pem_private_key(issued.private_key_pem.bytes(), None)
        encoded = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        for path, content in (
            (self.key, encoded),
            (self.certificate, issued.cert_chain_pems[0].bytes()),
        ):
            fresh = path.with_suffix(".new")
            fresh.write_bytes(content)
            fresh.replace(path)

    def options(self, prefix: str) -> dict[str, str]:
        """The files by the names of options: ``grpc.ssl``, ``zookeeper.ssl``."""
        return {
            f"{prefix}.certificate.location": str(self.certificate),
            f"{prefix}.key.location": str(self.key),
            f"{prefix}.ca.location": self.ca,
        }

    def client(self) -> dict[str, Any]:
        """Settings of a native client."""
        own = self.options("ssl")
        return {
            "security_protocol": "SSL",
            **{key.replace(".", "_"): value for key, value in own.items()},
        }

    def credentials(self) -> grpc.ChannelCredentials:
        """Credentials of a channel."""
        return grpc.ssl_channel_credentials(
            Path(self.ca).read_bytes(), self.key.read_bytes(), self.certificate.read_bytes()
        )


class MutualCluster(Cluster):
    """Cluster of one identity for all processes, and of others for clients."""

    def __init__(self, layout: Layout, directory: Path) -> None:
        directory.mkdir(parents=True)
        self._directory = directory
        self._authority = trustme.CA()
        self._ca = directory / "ca.pem"
        self._authority.cert_pem.write_to_path(str(self._ca))
        self.node = self.identity(NODE)
        self.secure_port = free_port()
        brokers = [one.name for one in layout.members() if one.kind == "broker"]
        self.clients_ports = {name: free_port() for name in brokers}
        """Ports of the listener GRPC, for clients with certificates."""
        self.digest_file = directory / "digest"
        self.digest_file.write_text(f"{DIGEST}\n", encoding="utf-8")
        super().__init__(layout, overrides=self._options())
        for name, port in self.clients_ports.items():
            self.configure(name, self._clients_over_grpc(name, port))

    def identity(self, name: str) -> Identity:
        """A new identity of the cluster's authority."""
        return Identity(self._directory, self._authority, self._ca, name)

    def _options(self) -> dict[str, Mapping[str, object]]:
        common: Config = {
            **self.node.options("grpc.ssl"),
            "grpc.ssl.client.auth": "required",
            "grpc.ssl.principal.mapping.rules": FIRST_NAME,
            "cluster.principals": f"User:{NODE}",
            "zookeeper.connect": f"{HOST}:{self.secure_port}{CHROOT}",
            "zookeeper.ssl.client.enable": True,
            **self.node.options("zookeeper.ssl"),
            "zookeeper.digest.file": str(self.digest_file),
            "zookeeper.set.acl": True,
        }
        audited: Config = {
            "audit.sinks": "log",
            "audit.interval.ms": "200",
            "log.format": "json",
        }
        broker = {
            **audited,
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS",
            "listener.security.protocol.map": "INTERNAL:SSL",
            "listener.name.internal.ssl.client.auth": "required",
            "listener.name.internal.ssl.principal.mapping.rules": FIRST_NAME,
            **self.node.options("listener.name.internal.ssl"),
        }
        own = {"broker": broker, "controller": audited}
        return {kind: {**common, **own.get(kind, {})} for kind in KINDS}

    def _clients_over_grpc(self, broker: str, port: int) -> Config:
        """Return the options of the listener GRPC."""
        ports = self.layout.member(broker).ports
        listeners = {"CLIENT": ports["client"], "INTERNAL": ports["internal"]}
        listeners["GRPC"] = port
        return {
            "listeners": ",".join(f"{name}://{HOST}:{port}" for name, port in listeners.items()),
            "listener.security.protocol.map": "INTERNAL:SSL,GRPC:SSL",
            "listener.name.grpc.ssl.client.auth": "required",
            "listener.name.grpc.ssl.principal.mapping.rules": FIRST_NAME,
            **self.node.options("listener.name.grpc.ssl"),
        }

    def _argv(self, member: Member) -> list[str]:
        """Give ZooKeeper a second port, with TLS and for clients with a certificate only."""
        argv = super()._argv(member)
        if member.kind == "zookeeper":
            both = self._directory / "zookeeper.pem"
            both.write_bytes(self.node.key.read_bytes() + self.node.certificate.read_bytes())
            with Path(argv[-1]).open("a", encoding="utf-8") as config:
                config.write(
                    f"secureClientPort={self.secure_port}\nsecureClientPortAddress={HOST}\n"
                    "serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory\n"
                    f"ssl.keyStore.location={both}\nssl.keyStore.type=PEM\n"
                    f"ssl.trustStore.location={self._ca}\nssl.trustStore.type=PEM\n"
                    "ssl.clientAuth=need\n"
                )
        return argv

    @property
    def zookeeper_connect(self) -> str:
        """Connect string with TLS."""
        return f"{HOST}:{self.secure_port}{CHROOT}"

    def access(self, digest_file: Path | None = None) -> ZkAccess:
        """Access of a process; with ``digest_file``, of a stranger who has a certificate."""
        return ZkAccess(
            has_tls=True,
            ca=str(self._ca),
            certificate=str(self.node.certificate),
            key=str(self.node.key),
            digest_file=str(digest_file or self.digest_file),
        )

    def is_supervised(self, name: str) -> bool:
        """True while the supervisor of a process runs, for instance to record its end."""
        return self._supervisor(name) is not None

    @contextmanager
    def zookeeper(self, credential: str | None) -> Iterator[Any]:
        """A client of ZooKeeper's port without TLS, as a user or as nobody."""
        auth = [] if credential is None else [("digest", credential)]
        client = KazooClient(f"{HOST}:{self.layout.shape.ports.zookeeper}", auth_data=auth)
        client.start()
        try:
            yield client
        finally:
            client.stop()
            client.close()


@contextmanager
def mutual_cluster(directory: Path, *, brokers: int = 3) -> Iterator[MutualCluster]:
    """Start the cluster; ended with the block."""
    layout = Layout.on_free_ports(
        directory / "cluster",
        brokers=brokers,
        controllers=2,
        txn_coordinators=1,
        share_coordinators=1,
    )
    cluster = MutualCluster(layout, directory / "identities")
    try:
        cluster.start(START_SECONDS)
        yield cluster
    except BaseException as problem:
        problem.add_note(cluster.logs_tail())
        raise
    finally:
        cluster.end()
        shutil.rmtree(directory / "identities")
