"""Certificates that the authority of one cluster issues."""

import ssl
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID
from tidemark.model.ids import WallMs
from tidemark.runtime.certificate_authority import VALID_DAYS, Authority, Identity

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


@pytest.mark.feature("SE29")
def test_a_certificate_is_due_after_two_thirds_of_its_time(authority: Authority) -> None:
    issued = authority.server("broker", ("localhost",), days=29).certificate
    days = {day: later(authority, day).is_due(issued, ("localhost",)) for day in (0, 18, 20, 40)}
    assert days == {0: False, 18: False, 20: True, 40: True}  # valid from a day before


@pytest.mark.feature("SE29")
def test_a_certificate_of_other_names_or_another_authority_is_due(authority: Authority) -> None:
    issued = authority.server("broker", ("localhost", "127.0.0.1")).certificate
    assert not authority.is_due(issued, ("127.0.0.1", "localhost"))
    assert authority.is_due(issued, ("localhost",))
    assert authority.is_due(authority.client("broker").certificate, ("localhost",))
    assert Authority.create("test", NOW).is_due(issued, ("127.0.0.1", "localhost"))
    assert authority.is_due(b"no certificate", ())


@pytest.mark.feature("SE29")
def test_an_authority_that_was_kept_issues_what_the_first_one_trusts(authority: Authority) -> None:
    again = Authority.load(authority.identity, NOW)
    found = x509.load_pem_x509_certificate(again.server("broker", ("localhost",)).certificate)
    found.verify_directly_issued_by(authority.certificate)
    with pytest.raises(ValueError, match="PEM"):
        Authority.load(Identity(b"", b""), NOW)


def later(authority: Authority, days: int) -> Authority:
    return Authority.load(authority.identity, WallMs(NOW + days * 86_400_000))
