"""A release whose certificates cert-manager issues and renews."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from k8s.cluster_waiting import wait_for
from k8s.release import Release, run, write_values
from k8s.test_nodes import lab
from lab import cert_manager

ISSUED: Final = "issued"
"""Release, and its namespace, whose certificates cert-manager makes."""

_ISSUERS: Final = """\
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: itself}
spec: {selfSigned: {}}
---
apiVersion: cert-manager.io/v1
kind: Certificate
metadata: {name: authority}
spec:
  isCA: true
  commonName: Authority of the lab
  secretName: authority
  privateKey: {algorithm: ECDSA, size: 256}
  issuerRef: {name: itself}
---
apiVersion: cert-manager.io/v1
kind: Issuer
metadata: {name: authority}
spec: {ca: {secretName: authority}}
"""
_SHOWN: Final = "import ssl, sys; print(ssl.get_server_certificate((sys.argv[1], 9092)))"
_ISSUING: Final = json.dumps(
    {
        "type": "Issuing",
        "status": "True",
        "reason": "ManuallyTriggered",
        "message": "Certificate re-issuance manually triggered",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
)
"""What `cmctl renew` sets."""


@pytest.fixture(scope="module")
def _cert_manager() -> Iterator[None]:
    lab("cert-manager")
    yield
    cert_manager.stop()


@pytest.fixture
def issued(tmp_path: Path) -> Iterator[Release]:
    """A release with certificates of an authority that cert-manager has."""
    release = Release(ISSUED)
    run("kubectl", "create", "namespace", ISSUED)
    run("kubectl", "apply", "-n", ISSUED, "-f", "-", given=_ISSUERS)
    tls = {"issuerRef": {"name": "authority"}}
    release.install(write_values(tmp_path / "values.yaml", tls=tls))
    release.wait_ready()
    yield release
    release.uninstall()
    release.remove_data()
    run("kubectl", "delete", "namespace", ISSUED)


def shown(release: Release) -> x509.Certificate:
    """The certificate that a broker shows to its clients."""
    host = f"{release.name}-bootstrap.{release.name}.svc.cluster.local"
    argv = ("exec", f"{release.name}-controller-0", "--", "python3", "-c", _SHOWN, host)
    return x509.load_pem_x509_certificate(release.kubectl(*argv).encode())


def common_name(name: x509.Name) -> str:
    """Common name of a subject or an issuer."""
    (found,) = name.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(found.value)


@pytest.mark.feature("SE29")
@pytest.mark.usefixtures("release", "_cert_manager")
def test_a_release_runs_with_certificates_of_cert_manager_and_takes_new_ones_without_a_restart(
    issued: Release,
) -> None:
    before = shown(issued)
    assert common_name(before.subject) == f"{ISSUED}-broker"
    assert common_name(before.issuer) == "Authority of the lab"
    issued.tidemark("topic", "create", "first")
    issued.tidemark("topic", "produce", "first", given="one\n")
    pods = {pod["metadata"]["uid"] for pod in issued.pods()}
    for certificate in issued.objects("certificates.cert-manager.io"):
        name = certificate["metadata"]["name"]
        if name != "authority":
            patch = f'[{{"op": "add", "path": "/status/conditions/-", "value": {_ISSUING}}}]'
            argv = ("certificate", name, "--subresource=status", "--type=json", "-p", patch)
            issued.kubectl("patch", *argv)
    wait_for(lambda: shown(issued).serial_number != before.serial_number)
    assert common_name(shown(issued).issuer) == "Authority of the lab"
    issued.wait_says("cluster", "health")
    issued.tidemark("topic", "produce", "first", given="two\n")
    read = issued.tidemark("topic", "consume", "first", "--from", "earliest", "--until-end")
    assert read.split() == ["one", "two"]
    assert pods <= {pod["metadata"]["uid"] for pod in issued.pods()}
