"""A certificate authority and what it signed, as an operator has them: PEM files.

What makes them is imported when the first is made: `make unit` starts without it.
"""

from pathlib import Path

from tidemark.runtime.tls import TlsSettings

SERVER = "broker-1.local"


class PemFiles:
    """In ``directory``: ``ca.pem``, ``tls.crt`` and ``tls.key``, for SERVER and 127.0.0.1."""

    def __init__(self, directory: Path) -> None:
        import trustme

        directory.mkdir(exist_ok=True)
        self._authority = trustme.CA()
        self.ca = directory / "ca.pem"
        self.certificate, self.key = directory / "tls.crt", directory / "tls.key"
        self._authority.cert_pem.write_to_path(self.ca)
        self.issue()

    def issue(self) -> None:
        """A new certificate and key in the same places."""
        issued = self._authority.issue_cert(SERVER, "127.0.0.1")
        issued.cert_chain_pems[0].write_to_path(self.certificate)
        issued.private_key_pem.write_to_path(self.key)

    def encrypt_key(self, password: str) -> None:
        from cryptography.hazmat.primitives import serialization

        key = serialization.load_pem_private_key(self.key.read_bytes(), None)
        self.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(password.encode()),
            )
        )

    @property
    def identity(self) -> TlsSettings:
        return TlsSettings(certificate=self.certificate, key=self.key, ca=self.ca)

    @property
    def trust(self) -> TlsSettings:
        return TlsSettings(ca=self.ca)
