"""Certificates of one cluster: an authority of its own, and what it has issued, as PEM."""

import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Self

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from tidemark.model.ids import WallMs

VALID_DAYS: Final = 3_650
_DAY: Final = datetime.timedelta(days=1)
_SERVER: Final = ExtendedKeyUsageOID.SERVER_AUTH
_CLIENT: Final = ExtendedKeyUsageOID.CLIENT_AUTH


@dataclass(frozen=True, slots=True)
class Identity:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


@dataclass(frozen=True, slots=True)
class Authority:
    """An authority of its own, which signs the certificates of one cluster."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey
    now: datetime.datetime

    @classmethod
    def create(cls, name: str, now_ms: WallMs) -> Self:
        """Return a new authority, whose certificates are valid from a day before ``now_ms`` on."""
        now = datetime.datetime.fromtimestamp(now_ms / 1_000, datetime.UTC)
        key = ec.generate_private_key(ec.SECP256R1())
        # Only certificates of clients and servers: the authority signs no further authority.
        own = x509.BasicConstraints(ca=True, path_length=0)
        usage = _usage(signs_certificates=True)
        certificate = (
            _builder(_subject(name), _subject(name), key.public_key(), now, VALID_DAYS)
            .add_extension(own, critical=True)
            .add_extension(usage, critical=True)
            .sign(key, hashes.SHA256())
        )
        return cls(certificate, key, now)

    @classmethod
    def load(cls, identity: Identity, now_ms: WallMs) -> Self:
        """Return an authority that was made before. Raises ValueError for PEM of something else."""
        key = serialization.load_pem_private_key(identity.key, None)
        if not isinstance(key, ec.EllipticCurvePrivateKey):
            raise ValueError("the key of the authority is not one of an elliptic curve")
        certificate = x509.load_pem_x509_certificate(identity.certificate)
        return cls(certificate, key, datetime.datetime.fromtimestamp(now_ms / 1_000, datetime.UTC))

    @property
    def identity(self) -> Identity:
        """Certificate and key of the authority itself."""
        return _identity(self.certificate, self.key)

    def server(self, name: str, hosts: Sequence[str], days: int = VALID_DAYS) -> Identity:
        """Issue a certificate for servers, which also connect to one another, at these names."""
        return self._issue(name, (_SERVER, _CLIENT), hosts, days)

    def client(self, name: str) -> Identity:
        """Issue the certificate of a client, whose common name is ``name``."""
        return self._issue(name, (_CLIENT,), (), VALID_DAYS)

    def is_due(self, certificate: bytes, hosts: Sequence[str]) -> bool:
        """True if a certificate is to be replaced: it is of another authority or for other names,
        two thirds of its time are over, or it is none.
        """
        try:
            found = x509.load_pem_x509_certificate(certificate)
            found.verify_directly_issued_by(self.certificate)
        except (ValueError, TypeError, InvalidSignature):
            return True
        begin, end = found.not_valid_before_utc, found.not_valid_after_utc
        return self.now >= begin + (end - begin) * 2 / 3 or _hosts(found) != set(map(_host, hosts))

    def _issue(
        self, name: str, purposes: Sequence[x509.ObjectIdentifier], hosts: Sequence[str], days: int
    ) -> Identity:
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self.certificate.subject
        builder = (
            _builder(_subject(name), issuer, key.public_key(), self.now, days)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self.key.public_key()),
                critical=False,
            )
        )
        if hosts:
            names = x509.SubjectAlternativeName([_host(each) for each in hosts])
            builder = builder.add_extension(names, critical=False)
        return _identity(builder.sign(self.key, hashes.SHA256()), key)


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    now: datetime.datetime,
    days: int,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _DAY)
        .not_valid_after(now + days * _DAY)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _subject(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _hosts(certificate: x509.Certificate) -> set[x509.GeneralName]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName)
    except x509.ExtensionNotFound:
        return set()
    return set(names.value)


def _host(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _identity(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> Identity:
    return Identity(
        certificate.public_bytes(serialization.Encoding.PEM),
        key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        ),
    )
