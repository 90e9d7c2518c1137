"""Request and response headers, and the table of APIs."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark.kafka.apis import APIS, ApiKey, is_flexible, is_served
from tidemark.kafka.headers import (
    HeaderReader,
    MalformedRequestError,
    read_request_header,
    read_response_header,
    request_header,
    response_header,
)

VERSIONS = [
    (key, version)
    for key, versions in APIS.items()
    for version in range(versions.served_min, versions.max + 1)
]


@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "ü"])
def test_a_request_header_survives(client_id: str | None) -> None:
    for key, version in VERSIONS:
        frame = request_header(key, version, -7, client_id) + b"body"
        header = read_request_header(memoryview(frame))
        assert header[:4] == (key, version, -7, client_id)
        assert frame[header.body_position :] == b"body"


def test_a_response_header_survives() -> None:
    for key, version in VERSIONS:
        frame = response_header(key, version, 1 << 30) + b"body"
        correlation_id, position = read_response_header(memoryview(frame), key, version)
        assert correlation_id == 1 << 30
        assert frame[position:] == b"body"


def test_api_versions_is_always_answered_under_header_v0() -> None:
    assert {len(response_header(ApiKey.API_VERSIONS, version, 1)) for version in range(6)} == {4}


def test_the_header_of_an_unknown_version_is_read() -> None:
    frame = request_header(ApiKey.API_VERSIONS, 99, 5, "new client")
    assert read_request_header(memoryview(frame)).api_version == 99


@pytest.mark.parametrize("size", range(12))
def test_a_header_cut_short_is_refused(size: int) -> None:
    frame = request_header(ApiKey.PRODUCE, 9, 5, "client")[:size]
    with pytest.raises(MalformedRequestError):
        read_request_header(memoryview(frame))


def test_produce_advertises_zero_and_serves_from_three() -> None:
    produce = APIS[ApiKey.PRODUCE]
    assert (produce.advertised_min, produce.served_min) == (0, 3)
    others = [versions for key, versions in APIS.items() if key != ApiKey.PRODUCE]
    assert all(versions.advertised_min == versions.served_min for versions in others)


@pytest.mark.parametrize(("key", "version"), [(0, 2), (0, 14), (1, 3), (18, 5), (999, 0), (3, -1)])
def test_what_is_not_in_the_table_is_not_served(key: int, version: int) -> None:
    assert not is_served(key, version)


def test_an_unknown_api_has_no_flexible_version() -> None:
    assert not is_flexible(999, 1)


@given(
    st.lists(
        st.tuples(
            st.sampled_from(VERSIONS),
            st.sampled_from([None, "", "rdkafka", "rdkafkb"]),
            st.integers(-(2**31), 2**31 - 1),
            st.integers(0, 40),
        ),
        max_size=8,
    )
)
def test_a_reader_of_repetitions_agrees_with_its_plain_twin(
    asked: list[tuple[tuple[ApiKey, int], str | None, int, int]],
) -> None:
    reader = HeaderReader()
    for (key, version), client_id, correlation_id, length in asked:
        frame = request_header(key, version, correlation_id, client_id) + b"body"
        view = memoryview(frame)[:length]
        try:
            expected = read_request_header(view)
        except MalformedRequestError:
            with pytest.raises(MalformedRequestError):
                reader.read(view)
        else:
            assert reader.read(view) == expected
