"""Repeated Produce requests read and answered by their prefix, against the whole codec."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.kafka import produce
from tidemark.kafka.produce_repeated import learn, records_behind, write_answer

NAMES = st.text(min_size=1, max_size=150)
RECORDS = st.one_of(st.binary(min_size=0, max_size=300), st.just(bytes(20_000)))


def request_for(
    name: str, topic_id: bytes, partition: int, records: bytes, acks: int = 1
) -> produce.ProduceRequest:
    one = produce.ProducePartition(partition, memoryview(records))
    return produce.ProduceRequest(None, acks, 30_000, [produce.ProduceTopic(name, topic_id, [one])])


@settings(max_examples=80)
@given(st.integers(9, 13), NAMES, st.binary(min_size=16, max_size=16), st.integers(0, 9), RECORDS)
def test_a_repetition_reads_as_the_codec_reads_it(
    version: int, name: str, topic_id: bytes, partition: int, records: bytes
) -> None:
    first = request_for(name, topic_id, partition, b"first")
    learnt = learn(first, version)
    assert learnt is not None
    prefix, known = learnt
    body = memoryview(
        produce.write_produce_request(version, request_for(name, topic_id, partition, records))
    )
    assert bytes(body[: len(prefix)]) == prefix
    found = records_behind(body, len(prefix))
    assert found is not None
    assert bytes(found) == records
    read = produce.read_produce_request(body, version)
    assert read.topics[0].partitions[0].records == found
    assert (known.acks, known.timeout_ms, known.partition) == (1, 30_000, partition)


@settings(max_examples=40)
@given(
    st.integers(9, 13),
    NAMES,
    st.binary(min_size=16, max_size=16),
    st.tuples(*[st.integers(-1, 2**62)] * 3),
)
def test_its_answer_is_the_codecs(
    version: int, name: str, topic_id: bytes, numbers: tuple[int, int, int]
) -> None:
    learnt = learn(request_for(name, topic_id, 3, b"x"), version)
    assert learnt is not None
    whole = produce.write_produce_response(
        version, [(name, topic_id, [produce.ProducePartitionResult(3, 0, *numbers)])]
    )
    assert write_answer(learnt[1], *numbers) == whole


@pytest.mark.parametrize(
    "tail",
    [b"", b"\x05abc", b"\x00\x00\x00\x00", b"\x02a\x00\x00", b"\x02a\x00\x00\x01", b"\xff" * 9],
)
def test_what_does_not_end_as_expected_is_left_to_the_codec(tail: bytes) -> None:
    body = memoryview(b"prefix" + tail + (b"" if tail else b"\x00"))
    assert records_behind(body, 6) is None


def test_what_would_not_pay_is_not_learnt() -> None:
    usual = request_for("t", bytes(16), 0, b"x")
    two = usual._replace(topics=usual.topics * 2)
    assert learn(usual, 8) is None
    assert learn(usual._replace(acks=0), 9) is None
    assert learn(usual._replace(transactional_id="tx"), 9) is None
    assert learn(two, 9) is None
