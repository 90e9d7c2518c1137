"""Certificates that an authority of a development cluster issues."""

import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from tidemark.cli.dev.certificates import VALID_DAYS, Authority
from tidemark.model.ids import WallMs

NOW = WallMs(1_800_000_000_000)


@pytest.fixture(scope="module")
def authority() -> Authority:
    return Authority.create("test", NOW)


@pytest.mark.feature("SE25")
def test_a_server_has_its_names_and_both_purposes(authority: Authority) -> None:
    found = x509.load_pem_x509_certificate(
        authority.server("broker", ("localhost", "127.0.0.1")).certificate
    )
    names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["localhost"]
    assert [str(each) for each in names.get_values_for_type(x509.IPAddress)] == ["127.0.0.1"]
    purposes = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(purposes) == [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]


@pytest.mark.feature("SE25")
def test_a_client_has_its_name_and_no_other_purpose(authority: Authority) -> None:
    found = x509.load_pem_x509_certificate(authority.client("alice").certificate)
    assert found.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value == "alice"
    purposes = found.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert list(purposes) == [ExtendedKeyUsageOID.CLIENT_AUTH]
    assert not found.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    found.verify_directly_issued_by(authority.certificate)
    valid = found.not_valid_after_utc - found.not_valid_before_utc
    assert valid.days == VALID_DAYS + 1


@pytest.mark.feature("SE25")
def test_openssl_takes_certificate_and_key_from_one_file(
    authority: Authority, tmp_path: Path
) -> None:
    issued = authority.client("alice")
    file = tmp_path / "alice.pem"
    file.write_bytes(issued.certificate + issued.key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(file)
    context.load_verify_locations(cadata=authority.identity.certificate.decode())
    assert len(context.get_ca_certs()) == 1
