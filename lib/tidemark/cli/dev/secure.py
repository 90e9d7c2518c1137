"""Files of a secure development cluster: certificates, passwords, and configurations of clients.

All are in ``secure/`` below the cluster's directory, which only its owner may read. Certificates
and passwords are made once and kept. The configurations of clients are written at each start,
because they name the addresses.
"""

import json
import os
import secrets
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tidemark.cli import profiles
from tidemark.cli.dev.layout import HOST, Layout, Member
from tidemark.cli.failure import CommandError
from tidemark.runtime.clock import Clock
from tidemark.runtime.exit_codes import ExitCode
from tidemark.runtime.tls import TlsSettings

ADMIN: Final = "admin"
"""The super user, as which the command line logs in."""
CLIENT: Final = "client"
"""A user who may write and read, and change nothing else."""
USERS: Final = (ADMIN, CLIENT)
MECHANISM: Final = "SCRAM-SHA-512"
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
NOTE: Final = (
    "secure: Kafka clients log in with SASL_SSL or show a certificate, gRPC clients, REST and the"
    " console want a password, and ACLs decide; processes meet one another and ZooKeeper under"
    " mutual TLS; metrics and pages for operators (ops.listen) are open to every user of this"
    " machine"
)
_GRPC_LOGIN: Final = {"grpc.security.protocol": "SASL_SSL"}
_PROCESS: Final = "process"
_HOSTS: Final = ("localhost", HOST, "::1")
_COMMON_NAME: Final = "RULE:^CN=([^,]+)$/$1/"
_PASSWORD_BYTES: Final = 24
_OTHERS: Final = 0o077


@dataclass(frozen=True, slots=True)
class SecureFiles:
    """Paths of the files. ``directory`` is absolute."""

    directory: Path

    @classmethod
    def of(cls, layout: Layout) -> "SecureFiles":
        """Return the files of a cluster."""
        return cls(layout.directory / "secure")

    @property
    def ca(self) -> Path:
        """Certificate of the authority, which clients trust."""
        return self.directory / "ca.pem"

    @property
    def broker(self) -> Path:
        """Certificate and key of the brokers, and of the controllers' REST."""
        return self.directory / "broker.pem"

    @property
    def process_ca(self) -> Path:
        """Certificate of the authority that has issued that of the processes and no other."""
        return self.directory / "process-ca.pem"

    @property
    def process(self) -> Path:
        """Certificate and key with which processes meet one another and ZooKeeper."""
        return self.directory / "process.pem"

    def process_tls(self) -> TlsSettings:
        """Return the identity of a process, to call others."""
        return TlsSettings(self.process, ca=self.process_ca)

    @property
    def users(self) -> Path:
        """The controllers' initial.users.file."""
        return self.directory / "users"

    @property
    def granted(self) -> Path:
        """Exists once the ACLs of the first start are made."""
        return self.directory / "acls-made"

    @property
    def profiles(self) -> Path:
        """Profiles of the command line, one for each user."""
        return self.directory / "profiles.json"

    def identity(self, user: str) -> Path:
        """Return the file with certificate and key of a user."""
        return self.directory / f"{user}.pem"

    def password(self, user: str) -> Path:
        """Return the file with a password."""
        return self.directory / f"{user}.password"

    def java(self, user: str) -> Path:
        """Return the properties of Kafka's Java clients and tools."""
        return self.directory / f"{user}.properties"

    def spark(self, user: str) -> Path:
        """Return the properties of Spark jobs: the same, and the login over gRPC."""
        return self.directory / f"{user}.spark.properties"

    def java_mutual(self, user: str) -> Path:
        """Return the same for the listener that wants a certificate instead of a password."""
        return self.directory / f"{user}.mutual.properties"

    def librdkafka(self, user: str) -> Path:
        """Return the configuration of librdkafka, for ``kcat -F``."""
        return self.directory / f"{user}.conf"

    def made_once(self) -> tuple[Path, ...]:
        """Return the files that ``prepare`` makes at the first start."""
        own = (self.ca, self.broker, self.directory / "ca.key", self.process_ca, self.process)
        identities = tuple(self.identity(user) for user in USERS)
        return (*own, self.users, *identities, *(self.password(user) for user in USERS))


def prepare(layout: Layout) -> None:
    """Make certificates and passwords if there are none, and write the clients' configurations.

    Raises CommandError for files that are missing or that others may read.
    """
    files = SecureFiles.of(layout)
    if files.directory.exists():
        if not files.process.exists() and not files.process_ca.exists():
            _make_process(files)  # the directory is older than these files
        _check(files)
    else:
        _make(files)
    for path, text in client_files(layout).items():
        write_private(path, text.encode())


def _make(files: SecureFiles) -> None:
    """Make all files in another directory, and rename it: a start that is cut off leaves none."""
    from tidemark.runtime.certificate_authority import Authority

    scratch = files.directory.with_name("secure.new")
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(mode=0o700, parents=True)
    new = SecureFiles(scratch)
    authority = Authority.create("tidemark development cluster", Clock().wall_ms())
    server = authority.server("broker", _HOSTS)
    write_private(new.ca, authority.identity.certificate)
    write_private(scratch / "ca.key", authority.identity.key)
    write_private(new.broker, server.certificate + server.key)
    _make_process(new)
    lines = []
    for user in USERS:
        identity = authority.client(user)
        write_private(new.identity(user), identity.certificate + identity.key)
        password = secrets.token_urlsafe(_PASSWORD_BYTES)
        write_private(new.password(user), f"{password}\n".encode())
        lines.append(f"{user}:{password}\n")
    write_private(new.users, "".join(lines).encode())
    scratch.rename(files.directory)


def _make_process(files: SecureFiles) -> None:
    """Make the certificate of the processes. The key of its authority is forgotten, so that no
    client has one that processes or ZooKeeper take.
    """
    from tidemark.runtime.certificate_authority import Authority

    own = Authority.create("processes of the development cluster", Clock().wall_ms())
    process = own.server(_PROCESS, _HOSTS)
    write_private(files.process_ca, own.identity.certificate)
    write_private(files.process, process.certificate + process.key)


def _check(files: SecureFiles) -> None:
    for path in (files.directory, *files.made_once()):
        if not path.exists():
            raise CommandError(
                f"{path} is missing, and brokers and clients need it",
                hint="restore the file, or remove the cluster's whole directory to begin anew",
                code=ExitCode.NO_INPUT,
            )
        if path.stat().st_mode & _OTHERS:
            raise CommandError(
                f"others may read {path}",
                hint=f"chmod go= {path}; if others have read it, remove the cluster's directory to"
                " begin anew",
                code=ExitCode.NO_PERMISSION,
            )


def write_private(path: Path, content: bytes) -> None:
    """Replace a file whole; only its owner may read it."""
    scratch = path.with_name(f"{path.name}.new")
    handle = os.open(scratch, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
    scratch.replace(path)


# -- what the processes are told


def keys_of(layout: Layout, member: Member) -> dict[str, object]:
    """Return the configuration that makes a process secure."""
    files = SecureFiles.of(layout)
    rules = {"authorizer.class.name": AUTHORIZER, "super.users": f"User:{ADMIN}"}
    meets = _between_processes(files)
    if member.kind == "controller":
        return {
            **meets,
            "initial.users.file": str(files.users),
            "rest.ssl.certificate.location": str(files.broker),
            "rest.authentication.mechanisms": "basic",
            **rules,
        }
    if member.kind != "broker":
        return meets
    ports = member.ports
    return {
        **meets,
        **rules,
        "listeners": ",".join(
            f"{name}://{HOST}:{ports[kind]}"
            for name, kind in (
                ("CLIENT", "client"),
                ("MUTUAL", "mutual"),
                ("INTERNAL", "internal"),
                ("GRPC", "grpc_client"),
            )
        ),
        "listener.security.protocol.map": "CLIENT:SASL_SSL,MUTUAL:SSL,INTERNAL:SSL,GRPC:SASL_SSL",
        "sasl.enabled.mechanisms": f"{MECHANISM},SCRAM-SHA-256,PLAIN",
        "ssl.certificate.location": str(files.broker),
        "ssl.ca.location": str(files.ca),
        "listener.name.mutual.ssl.client.auth": "required",
        "listener.name.mutual.ssl.principal.mapping.rules": _COMMON_NAME,
        "listener.name.internal.ssl.client.auth": "required",
        "listener.name.internal.ssl.principal.mapping.rules": _COMMON_NAME,
        "listener.name.internal.ssl.certificate.location": str(files.process),
        "listener.name.internal.ssl.ca.location": str(files.process_ca),
    }


def _between_processes(files: SecureFiles) -> dict[str, object]:
    """Return mutual TLS over gRPC and to ZooKeeper."""
    return {
        "grpc.ssl.certificate.location": str(files.process),
        "grpc.ssl.ca.location": str(files.process_ca),
        "grpc.ssl.client.auth": "required",
        "grpc.ssl.principal.mapping.rules": _COMMON_NAME,
        "cluster.principals": f"User:{_PROCESS}",
        "zookeeper.ssl.client.enable": True,
        "zookeeper.ssl.certificate.location": str(files.process),
        "zookeeper.ssl.ca.location": str(files.process_ca),
    }


def zookeeper_keys(layout: Layout) -> dict[str, object]:
    """Return ZooKeeper's options: one port, with TLS, for those with the processes' certificate."""
    files = SecureFiles.of(layout)
    return {
        "secureClientPort": layout.shape.ports.zookeeper,
        "secureClientPortAddress": HOST,
        "serverCnxnFactory": "org.apache.zookeeper.server.NettyServerCnxnFactory",
        "ssl.keyStore.type": "PEM",
        "ssl.keyStore.location": files.process,
        "ssl.trustStore.type": "PEM",
        "ssl.trustStore.location": files.process_ca,
        "ssl.clientAuth": "need",
    }


# -- what clients are told


def client_uses(layout: Layout) -> dict[str, str]:
    """Return a command for each kind of client, ready to use."""
    files = SecureFiles.of(layout)
    return {
        "java": f"kafka-topics.sh --bootstrap-server {layout.bootstrap} --command-config"
        f" {files.java(CLIENT)} --list",
        "curl": f'curl --cacert {files.ca} -u "{ADMIN}:$(cat {files.password(ADMIN)})"'
        f" {layout.rest_addresses.partition(',')[0]}/v3/clusters",
        "kcat": f"kcat -F {files.librdkafka(CLIENT)} -L",
        "spark": "spark-submit --py-files build/tidemark_jobs.zip spark-jobs/jobs/reshard.py"
        f" --bootstrap-servers {layout.grpc_client_bootstrap}"
        f" --kafka-properties {files.spark(CLIENT)} --help",
        "tidemark": f"tidemark topic list (as {ADMIN}, from {layout.directory.parent}), or"
        f" {profiles.FILE_VARIABLE}={files.profiles} tidemark --profile {CLIENT} topic list",
    }


def login_of(layout: Layout, user: str = ADMIN) -> dict[str, str]:
    """Return the settings with which the command line logs in."""
    files = SecureFiles.of(layout)
    return {
        "security.protocol": "SASL_SSL",
        **_GRPC_LOGIN,
        "sasl.mechanism": MECHANISM,
        "sasl.username": user,
        "sasl.password.file": str(files.password(user)),
        "ssl.ca.location": str(files.ca),
    }


def client_files(layout: Layout) -> Mapping[Path, str]:
    """Return the content of each configuration of a client."""
    files = SecureFiles.of(layout)
    found: dict[Path, str] = {}
    for user in USERS:
        password = files.password(user).read_text(encoding="ascii").strip()
        found[files.java(user)] = _java(layout, user, password)
        found[files.spark(user)] = found[files.java(user)] + _lines(_GRPC_LOGIN)
        found[files.java_mutual(user)] = _java_mutual(layout, user)
        found[files.librdkafka(user)] = _librdkafka(layout, user, password)
    found[files.profiles] = _profiles(layout)
    return found


def _java(layout: Layout, user: str, password: str) -> str:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    return _lines(
        {
            "bootstrap.servers": layout.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": MECHANISM,
            "sasl.jaas.config": f'{module} required username="{user}" password="{password}";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(SecureFiles.of(layout).ca),
        }
    )


def _java_mutual(layout: Layout, user: str) -> str:
    files = SecureFiles.of(layout)
    return _lines(
        {
            "bootstrap.servers": layout.mutual_bootstrap,
            "security.protocol": "SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(files.ca),
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(files.identity(user)),
        }
    )


def _librdkafka(layout: Layout, user: str, password: str) -> str:
    """Log in with PLAIN, over TLS: SCRAM fails with librdkafka before 2.6.1, as with Kafka 4,
    because it does not send the nonce that RFC 5802 requires. Debian's kcat has 2.0.
    """
    return _lines(
        {
            "bootstrap.servers": layout.bootstrap,
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": user,
            "sasl.password": password,
            "ssl.ca.location": str(SecureFiles.of(layout).ca),
        }
    )


def _profiles(layout: Layout) -> str:
    addresses = {
        "bootstrap": layout.bootstrap,
        "grpc-bootstrap": layout.grpc_for_clients,
        "rest": layout.rest_addresses,
    }
    named = {user: addresses | login_of(layout, user) for user in USERS}
    content = {"format": profiles.FORMAT, "current": None, "profiles": named}
    return json.dumps(content, indent=2) + "\n"


def _lines(values: Mapping[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in values.items())
