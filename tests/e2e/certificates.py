"""An authority and the certificates that it issued, as PEM files."""

import socket
import ssl
from pathlib import Path

import trustme
from cryptography import x509
from tidemark.cli.dev.layout import HOST
from waiting import PATIENCE_S

Files = dict[str, str]
"""Paths by the keys of librdkafka and of the broker."""


class Authority:
    """One authority; ``server`` is the identity of a broker."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self._directory = directory
        self._authority = trustme.CA()
        self.ca = str(directory / "ca.pem")
        self._authority.cert_pem.write_to_path(self.ca)
        self.server = self._write("server", self._authority.issue_cert(HOST))

    def renew_server(self) -> None:
        """Replace the broker's certificate with its key, one file after the other."""
        self._write("server", self._authority.issue_cert(HOST))

    def shown_serial(self, port: int) -> int:
        """Serial number of the certificate that a new connection is shown."""
        context = ssl.create_default_context(cafile=self.ca)
        with (
            socket.create_connection((HOST, port), PATIENCE_S) as plain,
            context.wrap_socket(plain, server_hostname=HOST) as secured,
        ):
            shown = secured.getpeercert(binary_form=True)
        assert shown is not None
        return x509.load_der_x509_certificate(shown).serial_number

    def client(self, name: str) -> Files:
        """The identity of a client whose common name this is."""
        issued = self._authority.issue_cert(
            f"{name}@example.com",
            common_name=name,
            organization_name="Acme, Inc.",
            organization_unit_name="sales",
        )
        return self._write(name, issued)

    def _write(self, name: str, issued: trustme.LeafCert) -> Files:
        paths = {
            "ssl.ca.location": self.ca,
            "ssl.certificate.location": str(self._directory / f"{name}.crt"),
            "ssl.key.location": str(self._directory / f"{name}.key"),
        }
        for key, content in (
            ("ssl.key.location", issued.private_key_pem),
            ("ssl.certificate.location", issued.cert_chain_pems[0]),
        ):
            fresh = Path(f"{paths[key]}.new")
            fresh.write_bytes(content.bytes())
            fresh.replace(paths[key])
        return paths
