"""Subscriptions and assignments of the consumers' own protocol."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.codec.consumer_protocol import (
    ConsumerSubscription,
    read_assignment,
    read_subscription,
    write_assignment,
    write_subscription,
)
from tidemark.codec.coordinator_fields import DamagedRecordError

OWNED = (("orders", (0, 3)),)


@pytest.mark.parametrize("version", range(4))
def test_a_subscription_has_what_its_version_has(version: int) -> None:
    full = ConsumerSubscription(version, ("a", "orders"), OWNED, 7, "rack")
    read = read_subscription(write_subscription(full))
    assert (read.version, read.topics) == (version, ("a", "orders"))
    assert read.owned == (OWNED if version >= 1 else ())
    assert read.generation == (7 if version >= 2 else -1)
    assert read.rack_id == ("rack" if version >= 3 else None)


@pytest.mark.parametrize("version", range(4))
def test_the_bytes_are_those_of_kafka(version: int) -> None:
    names = "00000001" + "0006" + b"orders".hex()
    parts = "00000001" + "0006" + b"orders".hex() + "00000002" + "00000000" + "00000003"
    tails = ["", parts, parts + "00000007", parts + "00000007" + "0001" + b"r".hex()]
    expected = f"{version:04x}" + names + "ffffffff" + tails[version]
    subscription = ConsumerSubscription(version, ("orders",), OWNED, 7, "r")
    assert write_subscription(subscription).hex() == expected


def test_a_newer_version_begins_as_the_newest_known_one_does() -> None:
    known = write_subscription(ConsumerSubscription(3, ("a",), OWNED, 7, "rack"))
    read = read_subscription(b"\0\x09" + known[2:] + b"more")
    assert (read.version, read.owned, read.rack_id) == (9, OWNED, "rack")


@pytest.mark.parametrize("version", [0, 1, 3])
def test_an_assignment_comes_back(version: int) -> None:
    data = write_assignment({"b": [2], "a": [0, 1]}, version)
    assert read_assignment(data) == (("a", (0, 1)), ("b", (2,)))
    assert data[:2] == version.to_bytes(2, "big")


def test_no_bytes_are_no_assignment() -> None:
    assert read_assignment(b"") == ()


@settings(max_examples=200, deadline=None)
@given(data=st.binary(max_size=60))
def test_any_other_bytes_are_damage(data: bytes) -> None:
    for read in (read_subscription, read_assignment):
        try:
            read(data)
        except DamagedRecordError:
            continue


@pytest.mark.parametrize("data", [b"", b"\0", b"\xff\xff\0\0\0\0", b"\0\0\0\0\0\5"])
def test_what_is_no_subscription_is_damage(data: bytes) -> None:
    with pytest.raises(DamagedRecordError):
        read_subscription(data)
