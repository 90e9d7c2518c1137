"""Options of every process of a cluster that decide how it meets the others: TLS of gRPC, and the
access to ZooKeeper.
"""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from tidemark.protocol.principal_mapping import DEFAULT_RULES, PrincipalMapper
from tidemark.runtime.service_config import ServiceConfig
from tidemark.runtime.tls import ClientAuth, TlsSettings
from tidemark.runtime.zk_access import ZkAccess

GRPC_PREFIX = "grpc."


class ClusterConfig(ServiceConfig):
    """Options of a process of a cluster; each has the same meaning in every service."""

    grpc_ssl_certificate_location: str = Field(
        "",
        description="PEM file with the certificate of this process, followed by the intermediate"
        " ones: its gRPC server speaks TLS, and so does it with the gRPC servers of the others,"
        " which must have the option too; empty: no TLS",
    )
    grpc_ssl_key_location: str = Field(
        "",
        description="PEM file with the private key, without a password; default:"
        " grpc.ssl.certificate.location",
    )
    grpc_ssl_ca_location: str = Field(
        "",
        description="PEM file with the authorities of the certificates of the other processes and"
        " of gRPC clients; default: those of the system",
    )
    grpc_ssl_client_auth: Literal["none", "required"] = Field(
        "none",
        description="require a certificate from gRPC callers; without it, the gRPC port belongs in"
        " a private network",
    )
    grpc_ssl_principal_mapping_rules: str = Field(
        DEFAULT_RULES,
        description="rules by which the subject of a gRPC caller's certificate becomes the name of"
        " its principal, as those of ssl.principal.mapping.rules",
    )
    cluster_principals: str = Field(
        "",
        description="principals of the certificates of the cluster's processes,"
        " User:name;User:name: they may do everything, over gRPC and over the listener INTERNAL;"
        " to all others controllers and coordinators refuse every call",
    )
    zookeeper_ssl_client_enable: bool = Field(
        default=False, description="speak TLS with ZooKeeper, at its secureClientPort"
    )
    zookeeper_ssl_ca_location: str = Field(
        "",
        description="PEM file with the authorities of the certificates of ZooKeeper; default: those"
        " of the system",
    )
    zookeeper_ssl_certificate_location: str = Field(
        "", description="PEM file with the certificate of this process for ZooKeeper"
    )
    zookeeper_ssl_key_location: str = Field(
        "",
        description="PEM file with its private key, without a password; default:"
        " zookeeper.ssl.certificate.location",
    )
    zookeeper_digest_file: str = Field(
        "",
        description="file with a line user:password, by which ZooKeeper recognises the cluster's"
        " processes (its scheme digest); the same for all of them",
    )
    zookeeper_set_acl: bool = Field(
        default=False,
        description="give every znode that is created an ACL by which only the user of"
        " zookeeper.digest.file may read and change it; set it for all processes",
    )

    @field_validator("grpc_ssl_principal_mapping_rules")
    @classmethod
    def _readable_rules_of_grpc(cls, rules: str) -> str:
        PrincipalMapper(rules)
        return rules

    @field_validator("cluster_principals")
    @classmethod
    def _principals_of_cluster(cls, text: str) -> str:
        for name in principals_in(text):
            kind, _, user = name.partition(":")
            if kind != "User" or not user:
                raise ValueError(f"{name!r} is no principal: use User:name;User:name")
        return text

    @model_validator(mode="after")
    def _check_grpc_tls(self) -> Self:
        if not self.grpc_ssl_certificate_location:
            for option in ("grpc_ssl_key_location", "grpc_ssl_ca_location"):
                if getattr(self, option):
                    raise ValueError(
                        f"{option.replace('_', '.')} needs grpc.ssl.certificate.location"
                    )
        if self.grpc_ssl_client_auth == "none":
            return self
        for option in ("grpc_ssl_certificate_location", "grpc_ssl_ca_location"):
            if not getattr(self, option):
                raise ValueError(f"grpc.ssl.client.auth=required needs {option.replace('_', '.')}")
        if not principals_in(self.cluster_principals):
            raise ValueError(
                "grpc.ssl.client.auth=required needs cluster.principals: without them, every client"
                " with a certificate could pass for a process of the cluster. They are User: and"
                " the subjects of the processes' certificates, as User:CN=broker,O=Acme"
            )
        return self

    @model_validator(mode="after")
    def _check_zookeeper(self) -> Self:
        if self.zookeeper_set_acl and not self.zookeeper_digest_file:
            raise ValueError(
                "zookeeper.set.acl needs zookeeper.digest.file: the user to whom ACLs allow access"
            )
        if not self.zookeeper_ssl_client_enable and (
            self.zookeeper_ssl_ca_location or self.zookeeper_ssl_certificate_location
        ):
            raise ValueError("zookeeper.ssl.* needs zookeeper.ssl.client.enable=true")
        return self

    @property
    def process_principals(self) -> frozenset[str]:
        """Principals of the processes of the cluster."""
        return frozenset(principals_in(self.cluster_principals))

    def grpc_tls(self) -> TlsSettings | None:
        """Return the TLS of gRPC, for the server and for channels; None without."""
        if not self.grpc_ssl_certificate_location:
            return None
        return TlsSettings(
            Path(self.grpc_ssl_certificate_location),
            _path(self.grpc_ssl_key_location),
            ca=_path(self.grpc_ssl_ca_location),
            client_auth=ClientAuth(self.grpc_ssl_client_auth),
            prefix=GRPC_PREFIX,
        )

    def grpc_client_security(self) -> dict[str, str]:
        """Return the settings of a native client that this process uses over gRPC."""
        if not self.grpc_ssl_certificate_location:
            return {}
        return {
            "security_protocol": "SSL",
            "ssl_certificate_location": self.grpc_ssl_certificate_location,
            "ssl_key_location": self.grpc_ssl_key_location,
            "ssl_ca_location": self.grpc_ssl_ca_location,
        }

    def zookeeper_access(self) -> ZkAccess:
        """Return TLS and user for sessions with ZooKeeper."""
        return ZkAccess(
            has_tls=self.zookeeper_ssl_client_enable,
            ca=self.zookeeper_ssl_ca_location,
            certificate=self.zookeeper_ssl_certificate_location,
            key=self.zookeeper_ssl_key_location,
            digest_file=self.zookeeper_digest_file,
            sets_acls=self.zookeeper_set_acl,
        )


def principals_in(text: str) -> list[str]:
    """Return the names of a list like ``super.users``."""
    return [name.strip() for name in text.split(";") if name.strip()]


def _path(text: str) -> Path | None:
    return Path(text) if text else None
