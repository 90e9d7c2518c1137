"""Principals of real certificates, as Java prints their subjects."""

import datetime
from typing import Any

import pytest
from tidemark.protocol.principal_mapping import PrincipalMapper
from tidemark.runtime.access.certificates import principal_of

MAPPER = PrincipalMapper("DEFAULT")


class Peer:
    """The end of a connection that has verified a certificate."""

    def __init__(self, certificate: bytes | None) -> None:
        self._certificate = certificate

    def getpeercert(self, *, binary_form: bool) -> bytes | None:
        assert binary_form
        return self._certificate


def certificate_for(*levels: list[tuple[str, str]]) -> bytes:
    from cryptography import x509
    from cryptography.hazmat.primitives import hashes, serialization
    from cryptography.hazmat.primitives.asymmetric import ec

    def level(attributes: list[tuple[str, str]]) -> x509.RelativeDistinguishedName:
        made = [x509.NameAttribute(x509.ObjectIdentifier(oid), text) for oid, text in attributes]
        return x509.RelativeDistinguishedName(made)

    name, key = x509.Name([level(one) for one in levels]), ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).serial_number(5)
    builder = builder.not_valid_before(now).not_valid_after(now + datetime.timedelta(days=9_000))
    made = builder.public_key(key.public_key()).sign(key, hashes.SHA256())
    return made.public_bytes(serialization.Encoding.DER)


MAIL, UID, TITLE = "1.2.840.113549.1.9.1", "0.9.2342.19200300.100.1.1", "2.5.4.12"
LONG = "x" * 200


@pytest.mark.parametrize(
    ("levels", "printed"),
    [
        ([[("2.5.4.6", "US")], [("2.5.4.3", "alice")]], "CN=alice,C=US"),
        ([[(MAIL, "a@b.c")], [(UID, "u1")]], f"UID=u1,{MAIL}=#16056140622e63"),
        (
            [[("2.5.4.3", "x"), ("2.5.4.10", "multi")], [(TITLE, "Dr")]],
            f"{TITLE}=#0c024472,CN=x+O=multi",
        ),
        ([[(MAIL, LONG)]], f"{MAIL}=#1681c8{LONG.encode().hex()}"),
    ],
)
@pytest.mark.feature("SE08")
def test_a_certificates_subject_is_the_principal(levels: Any, printed: str) -> None:
    peer: Any = Peer(certificate_for(*levels))
    assert principal_of(peer, MAPPER) == f"User:{printed}"


@pytest.mark.parametrize("certificate", [None, b""])
def test_a_client_without_a_certificate_is_anonymous(certificate: bytes | None) -> None:
    peer: Any = Peer(certificate)
    assert principal_of(peer, MAPPER) == principal_of(None, MAPPER) == "User:ANONYMOUS"
