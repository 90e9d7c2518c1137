"""Which clients a subscription is about, and what all of them want together."""

import pytest
from broker.core.client_metrics.subscription import Client, Subscription, shown_uuid, wanted
from tidemark.model.errors import TidemarkError

ID = bytes(range(16))
CRC_OF_NOTHING = -725_132_322
CLIENT = Client(shown_uuid(ID), "billing-7", "apache-kafka-java", "4.3.1", "::1", "50123")


@pytest.mark.parametrize(
    ("match", "matches"),
    [
        ("", True),
        ("client_id=billing-.*", True),
        ("client_id=billing", False),
        (f"client_instance_id={shown_uuid(ID)}", True),
        ("client_software_name=apache-kafka-java,client_software_version=4\\..*", True),
        ("client_software_name=apache-kafka-java,client_software_version=3\\..*", False),
        ("client_source_address=::1", True),
        ("client_source_port=50[0-9]{3}", True),
        ("client_source_port=60[0-9]{3}", False),
    ],
)
@pytest.mark.feature("AD90")
def test_a_client_matches_if_every_pattern_does(match: str, matches: bool) -> None:
    assert Subscription.of({"match": match}).matches(CLIENT) is matches


def test_a_name_beyond_ascii_matches_any_character() -> None:
    client = CLIENT._replace(client_id="größe")
    assert Subscription.of({"match": "client_id=gr..e"}).matches(client)
    assert not Subscription.of({"match": "client_id=gr.e"}).matches(client)


def test_a_pattern_with_an_error_is_named() -> None:
    with pytest.raises(TidemarkError, match=r"Illegal client matching pattern: client_id=a\(b"):
        Subscription.of({"match": "client_id=a(b"})


def test_metrics_are_joined_and_the_shortest_interval_holds() -> None:
    both = [
        Subscription.of({"metrics": "b.,a.", "interval.ms": "5000"}),
        Subscription.of({"metrics": "a.,c.", "interval.ms": "100"}),
        Subscription.of({"metrics": "*", "interval.ms": "100", "match": "client_id=other"}),
    ]
    found = wanted(both, CLIENT, ID)
    assert (found.metrics, found.interval_ms) == (("a.", "b.", "c."), 100)


def test_all_metrics_stand_alone() -> None:
    both = [Subscription.of({"metrics": "*"}), Subscription.of({"metrics": "a."})]
    assert wanted(both, CLIENT, ID).metrics == ("*",)


def test_without_a_subscription_nothing_is_wanted_every_five_minutes() -> None:
    found = wanted([], CLIENT, ID)
    assert (found.metrics, found.interval_ms) == ((), 300_000)


def test_the_subscription_id_is_kafkas() -> None:
    """CRC-32C of ``[]300000``, XORed with Uuid.hashCode of a uuid of zeros, and of ID."""
    assert wanted([], CLIENT, bytes(16)).subscription_id == CRC_OF_NOTHING
    halves = int.from_bytes(ID[:8], "big") ^ int.from_bytes(ID[8:], "big")
    hashed = (halves >> 32) ^ (halves & 0xFFFFFFFF)
    unsigned = wanted([], CLIENT, ID).subscription_id & 0xFFFFFFFF
    assert unsigned == (CRC_OF_NOTHING & 0xFFFFFFFF) ^ hashed
