"""Subjects as Java 25 prints them, and Kafka's rules (KIP-371)."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark.protocol.principal_mapping import (
    NameAttribute,
    NoPrincipalError,
    PrincipalMapper,
    java_name,
)

CN, ORG, OU, C, MAIL = "2.5.4.3", "2.5.4.10", "2.5.4.11", "2.5.4.6", "1.2.840.113549.1.9.1"
DUKE = "CN=Duke,OU=ServiceUsers,O=Org,C=US"


def subject(*levels: tuple[str, str]) -> str:
    return java_name([[NameAttribute(oid, text, b"\x16\x01a")] for oid, text in levels])


@pytest.mark.feature("SE08")
def test_a_subject_begins_with_its_last_part() -> None:
    assert subject((C, "US"), (ORG, "Acme, Inc."), (OU, "R+D"), (CN, "alice")) == (
        "CN=alice,OU=R\\+D,O=Acme\\, Inc.,C=US"
    )


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        (' lead#"x\\<>;=  trail ', '\\ lead\\#\\"x\\\\\\<\\>\\;\\=  trail\\ '),
        ("\u00e4\u20ac", "\u00e4\u20ac"),
        ("a\nb\0c", "a\nb\\00c"),
        ("  ", "\\ \\ "),
        ("", ""),
    ],
)
def test_values_are_escaped_as_in_java(text: str, printed: str) -> None:
    assert subject((CN, text)) == f"CN={printed}"


def test_other_attributes_are_numbers_and_several_of_one_level_are_joined() -> None:
    levels = [[NameAttribute(MAIL, "a", b"\x16\x01a")], [NameAttribute(CN, "a", b"")] * 2]
    assert java_name(levels) == "CN=a+CN=a,1.2.840.113549.1.9.1=#160161"


@given(st.text(), st.text())
def test_different_names_stay_different_and_commas_cannot_be_smuggled_in(a: str, b: str) -> None:
    shown = [subject((ORG, "org"), (CN, text)) for text in (a, b)]
    assert (shown[0] == shown[1]) == (a == b)
    assert len(re.findall(r"(?<!\\)(?:\\\\)*,", shown[0])) == 1


RULES = ", ".join(
    (
        r"RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L",
        r"RULE:^CN=(.*?),OU=(.*?),O=(.*?),L=(.*?),ST=(.*?),C=(.*?)$/$1@$2/L",
        r"RULE:^cn=(.*?),ou=(.*?),dc=(.*?),dc=(.*?)$/$1@$2/U",
        r"RULE:^.*[Cc][Nn]=([a-zA-Z0-9.]*).*$/$1/U",
        "DEFAULT",
    )
)


@pytest.mark.parametrize(
    ("name", "principal"),
    [
        (DUKE, "duke"),
        ("CN=Duke,OU=SME,O=mycp,L=Fulton,ST=MD,C=US", "duke@sme"),
        ("cn=duke,ou=sme,dc=mycp,dc=com", "DUKE@SME"),
        ("cN=duke,OU=JavaSoft,O=Sun Microsystems", "DUKE"),
        ("OU=JavaSoft,O=Sun Microsystems,C=US", "OU=JavaSoft,O=Sun Microsystems,C=US"),
    ],
)
def test_the_first_rule_that_applies_decides(name: str, principal: str) -> None:
    assert PrincipalMapper(RULES).name_of(name) == principal


@pytest.mark.parametrize(
    ("rules", "principal"),
    [
        (r"RULE:^CN=((\\, *|\w)+)(,.*|$)/$1/,DEFAULT", r"Tkac\, Adam"),
        (r",, RULE:^OU=.*$/no/ ,, RULE:CN=(\w+).*/$1\/$9\$1/", r"Tkac/$9$1"),
        (r"RULE:^CN=(\w).*$/$123/", "T23"),
        (r"RULE:^CN=.*$/who/U", "WHO"),
    ],
)
def test_escapes_and_references_are_kafkas(rules: str, principal: str) -> None:
    assert PrincipalMapper(rules).name_of(r"CN=Tkac\, Adam,OU=ITZ,DC=geodis,DC=cz") == principal


@pytest.mark.parametrize(
    "rules",
    [
        "default",
        "DEFAULT/L",
        "RULE:CN=(.*?),OU=ServiceUsers.*/$1",
        "rule:^CN=(.*?),OU=ServiceUsers.*$/$1/",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/$1/L/U",
        "RULE:^CN=(.*?),OU=ServiceUsers.*$/LU",
        "RULE:(/x/",
    ],
)
def test_what_is_no_rule_is_refused(rules: str) -> None:
    with pytest.raises(ValueError, match="is no "):
        PrincipalMapper(rules)


@pytest.mark.parametrize("rules", ["", "RULE:^CN=nobody$/x/", "RULE:^(x)?.*$/$1/"])
def test_without_a_rule_that_gives_a_name_there_is_no_principal(rules: str) -> None:
    with pytest.raises(NoPrincipalError, match="no rule for 'CN=Duke"):
        PrincipalMapper(rules).name_of(DUKE)
