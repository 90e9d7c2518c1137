"""Principals of peers with mutual TLS, from the certificate that the handshake verified.

The library that reads it is loaded with the first one: a service without mutual TLS has no need of
its 8 MB.
"""

import ssl
from collections.abc import Iterable
from typing import TYPE_CHECKING

from tidemark.model.authorization import ANONYMOUS
from tidemark.protocol.principal_mapping import (
    NameAttribute,
    NoPrincipalError,
    PrincipalMapper,
    java_name,
)

if TYPE_CHECKING:
    from cryptography import x509


def principal_of(connection: ssl.SSLObject | ssl.SSLSocket | None, mapper: PrincipalMapper) -> str:
    """Return ``User:`` and the mapped name; ANONYMOUS without a certificate. Raises
    NoPrincipalError.
    """
    certificate = None if connection is None else connection.getpeercert(binary_form=True)
    if not certificate:
        return ANONYMOUS
    return _principal(certificate, mapper, is_pem=False)


def principal_of_pem(certificate: bytes, mapper: PrincipalMapper) -> str:
    """Return ``User:`` and the mapped name of a certificate in PEM. Raises NoPrincipalError."""
    return _principal(certificate, mapper, is_pem=True)


def _principal(certificate: bytes, mapper: PrincipalMapper, *, is_pem: bool) -> str:
    from cryptography import x509

    load = x509.load_pem_x509_certificate if is_pem else x509.load_der_x509_certificate
    try:
        subject = load(certificate).subject
        levels = [_attributes(level) for level in subject.rdns]
    except ValueError as problem:
        raise NoPrincipalError(f"the certificate's subject cannot be read: {problem}") from None
    return f"User:{mapper.name_of(java_name(levels))}"


def _attributes(level: "Iterable[x509.NameAttribute[str | bytes]]") -> list[NameAttribute]:
    return [
        NameAttribute(
            one.oid.dotted_string,
            one.value if isinstance(one.value, str) else None,
            _value_of(one),
        )
        for one in level
    ]


def _value_of(one: "x509.NameAttribute[str | bytes]") -> bytes:
    """Return the value's encoding: that of a name is SEQUENCE { SET { SEQUENCE { OID, value }}}."""
    from cryptography import x509

    encoded = x509.Name([one]).public_bytes()
    for _ in range(3):
        encoded = encoded[_header_bytes(encoded) :]
    return encoded[_header_bytes(encoded) + encoded[1] :]


def _header_bytes(encoded: bytes) -> int:
    """Return the size of tag and length of a DER value."""
    length = encoded[1]
    return 2 + (length & 0x7F if length & 0x80 else 0)
