"""An authority and the certificates that it issued, as PEM files."""

from pathlib import Path

import trustme
from tidemark.cli.dev.layout import HOST

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
        issued.cert_chain_pems[0].write_to_path(paths["ssl.certificate.location"])
        issued.private_key_pem.write_to_path(paths["ssl.key.location"])
        return paths
