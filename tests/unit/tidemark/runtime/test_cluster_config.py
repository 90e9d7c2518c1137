"""Options of how the processes of a cluster meet."""

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError
from tidemark.runtime.cluster_config import ClusterConfig
from tidemark.runtime.tls import ClientAuth

FILES: dict[str, Any] = {
    "grpc_ssl_certificate_location": "/own.crt",
    "grpc_ssl_ca_location": "/ca.pem",
}
MUTUAL: dict[str, Any] = {
    **FILES,
    "grpc_ssl_client_auth": "required",
    "cluster_principals": "User:a; User:CN=b,O=c",
}


def test_without_a_certificate_there_is_no_tls() -> None:
    config = ClusterConfig()
    assert config.grpc_tls() is None
    assert config.grpc_client_security() == {}
    assert not config.zookeeper_access().has_tls


@pytest.mark.feature("SE09")
def test_a_certificate_gives_grpc_tls() -> None:
    found = ClusterConfig(**MUTUAL).grpc_tls()
    assert found is not None
    assert (found.certificate, found.ca) == (Path("/own.crt"), Path("/ca.pem"))
    assert found.client_auth is ClientAuth.REQUIRED


def test_principals_are_separated_by_semicolons_for_their_names_have_commas() -> None:
    assert ClusterConfig(**MUTUAL).process_principals == {"User:a", "User:CN=b,O=c"}


@pytest.mark.feature("SE09", "SE10")
@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"grpc_ssl_ca_location": "/ca"}, "grpc.ssl.ca.location needs grpc.ssl.certificate"),
        ({"grpc_ssl_client_auth": "required"}, "needs grpc.ssl.certificate.location"),
        ({**MUTUAL, "cluster_principals": " ; "}, "needs cluster.principals"),
        ({**MUTUAL, "cluster_principals": "node"}, "'node' is no principal"),
        ({"grpc_ssl_principal_mapping_rules": "RULE:("}, "is no rule"),
        ({"zookeeper_set_acl": True}, "needs zookeeper.digest.file"),
        ({"zookeeper_ssl_ca_location": "/ca"}, "zookeeper.ssl.client.enable=true"),
    ],
)
def test_what_cannot_work_is_refused_with_what_to_do(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValidationError, match=words):
        ClusterConfig(**options)
