import pytest
from hypothesis import given
from hypothesis import strategies as st
from tidemark.cli.failure import CommandError
from tidemark.cli.topic.formats import as_json
from tidemark.cli.topic.percent_format import (
    InputFormat,
    InputRecord,
    as_bytes,
    compile_format,
    read_json,
)
from tidemark.client.consumer.fetched_chunk import ConsumerRecord
from tidemark.runtime.exit_codes import ExitCode

RECORD = ConsumerRecord("orders", 2, 41, 1_700_000_000_123, b"k\xff", b"v", (("h", b"1"),))


@pytest.mark.feature("AD60")
@pytest.mark.parametrize(
    ("text", "line"),
    [
        (r"%k %v\n", b"k\xff v\n"),
        (r"%t/%p/%o@%T\t%h", b"orders/2/41@1700000000123\th=1"),
        (r"%K %V %S%%", b"2 1 1%"),
        (r"%k{hex}\x00%v{base64}", b"6bff\x00dg=="),
        (r"%s{json}", b'"v"'),
        (r"%h{hex}", b"h=31"),
        ("plain", b"plain"),
    ],
)
def test_a_record_is_printed_as_its_format_says(text: str, line: bytes) -> None:
    assert as_bytes(RECORD, compile_format(text)) == line


def test_null_and_empty_differ_by_their_lengths() -> None:
    parts = compile_format("%K,%V,%k")
    assert as_bytes(RECORD._replace(key=None, value=b""), parts) == b"-1,0,"


@pytest.mark.parametrize("text", ["%y", "%o{hex}", "%k{rot13}"])
def test_a_format_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="--format") as refused:
        compile_format(text)
    assert refused.value.exit_code is ExitCode.USAGE


@pytest.mark.feature("AD60")
@pytest.mark.parametrize(
    ("text", "line", "record"),
    [
        ("%k:%v", b"a:b:c", InputRecord(b"a", b"b:c")),
        (r"%v\n", b"v", InputRecord(None, b"v")),
        (r"%p %T %k{hex} %s", b"3 17 ff00 x", InputRecord(b"\xff\x00", b"x", (), 3, 17)),
        ("%h|%v", b"a=1,b=2|x", InputRecord(None, b"x", (("a", b"1"), ("b", b"2")))),
    ],
)
def test_a_line_is_read_as_its_format_says(text: str, line: bytes, record: InputRecord) -> None:
    assert InputFormat.of(text).read(line, 1) == record


def test_a_record_may_end_with_other_bytes_than_a_line() -> None:
    assert InputFormat.of(r"%k=%v\x00").end == b"\0"
    assert InputFormat.of("%k=%v").end == b"\n"


@pytest.mark.parametrize("text", ["", "%o", "%k%v", "%k %k"])
def test_a_format_that_cannot_be_read_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="--format"):
        InputFormat.of(text)


@pytest.mark.parametrize(
    ("text", "line"),
    [("%k:%v", b"a"), ("%p %v", b"x y"), ("%k{hex}", b"x"), ("%h|%v", b"a|x"), ("%T", b"-2")],
)
def test_a_line_in_another_format_is_named_by_its_number(text: str, line: bytes) -> None:
    with pytest.raises(CommandError, match="line 7") as refused:
        InputFormat.of(text).read(line, 7)
    assert refused.value.exit_code is ExitCode.DATA


BYTES = st.none() | st.binary(max_size=20)
HEADERS = st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3)


@pytest.mark.feature("AD60")
@given(BYTES, BYTES, HEADERS)
def test_what_consume_prints_as_json_produce_reads_back(
    key: bytes | None, value: bytes | None, headers: list[tuple[str, bytes | None]]
) -> None:
    record = RECORD._replace(key=key, value=value, headers=tuple(headers))
    read = read_json(as_json(record).encode("utf-8", "surrogatepass"), 1)
    assert read == InputRecord(key, value, tuple(headers), 2, record.timestamp_ms)


NO_RECORDS = (b"", b"[]", b"{", b'{"value_base64":"%"}', b'{"headers":[{}]}')
UNTIMELY = (b'{"timestamp":-2}', b'{"timestamp":9223372036854775808}', b'{"timestamp":Infinity}')


@pytest.mark.parametrize("line", [*NO_RECORDS, *UNTIMELY])
def test_a_line_that_is_no_record_is_refused(line: bytes) -> None:
    with pytest.raises(CommandError, match="line 3"):
        read_json(line, 3)


def test_a_record_without_a_time_gets_the_present_one() -> None:
    assert InputFormat.of("%T %v").read(b"-1 x", 1) == InputRecord(None, b"x")
    assert read_json(b'{"timestamp": -1}', 1).timestamp_ms is None


def test_a_value_that_is_an_object_is_sent_as_json() -> None:
    assert read_json(b'{"value": {"a": 1}}', 1).value == b'{"a":1}'
