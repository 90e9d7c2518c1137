"""Bytes of records in an answer: shown in the format that fits, and read from Confluent's."""

import json
from typing import Any

import pytest
from controller.admin.errors import AdminError
from controller.admin.payloads import SHOWN_BYTES_MAX, Encoding, Format, Payload, encode, show
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("content", "wanted", "form", "data"),
    [
        (b'{"id": 7}', "auto", "json", {"id": 7}),
        (b'{"id": 7}', "text", "text", '{"id": 7}'),
        (b'{"id": 7}', "hex", "hex", "7b226964223a20377d"),
        (b"seven", "json", "text", "seven"),
        (b"a\tb\r\n", "auto", "text", "a\tb\r\n"),
        (b"a\x00b", "auto", "hex", "610062"),
        (b"\xff", "text", "hex", "ff"),
        (b"", "auto", "text", ""),
    ],
)
def test_bytes_have_the_format_asked_for_or_the_next_that_fits(
    content: bytes, wanted: Format, form: str, data: Any
) -> None:
    shown = show(content, wanted)
    assert (shown.format, shown.data, shown.size_bytes) == (form, data, len(content))


def test_no_bytes_are_null_and_not_empty() -> None:
    assert show(None, "auto") == Payload(format="null", data=None, size_bytes=0)


@pytest.mark.parametrize("content", [b"NaN", b"1e999", b'{"a":[-Infinity]}', b'{"a":[1e999]}'])
def test_numbers_that_are_no_json_are_text(content: bytes) -> None:
    assert show(content, "auto").format == "text"


@pytest.mark.feature("AD08")
@pytest.mark.parametrize("content", [b'"\\ud800"', b'{"\\udfff": 1}', b"[" * 300 + b"]" * 300])
def test_json_that_an_answer_cannot_hold_is_text(content: bytes) -> None:
    shown = show(content, "json")
    assert (shown.format, shown.data) == ("text", content.decode())


@given(st.binary(max_size=60) | st.text(max_size=30).map(lambda one: json.dumps(one).encode()))
def test_whatever_a_record_holds_fits_into_an_answer(content: bytes) -> None:
    for wanted in ("auto", "text", "json", "hex"):
        assert json.loads(show(content, wanted).model_dump_json())["size_bytes"] == len(content)


def test_a_long_value_is_cut_between_characters() -> None:
    content = b"x" + "é".encode() * SHOWN_BYTES_MAX
    shown = show(content, "auto")
    assert (shown.format, shown.truncated, shown.size_bytes) == ("text", True, len(content))
    assert shown.data == "x" + "é" * ((SHOWN_BYTES_MAX - 1) // 2)


@pytest.mark.parametrize(
    ("data", "encoding", "content"),
    [
        ({"id": 7}, "json", b'{"id": 7}'),
        ("é", "json", b'"\xc3\xa9"'),
        ("é", "string", b"\xc3\xa9"),
        ("AAE=", "binary", b"\x00\x01"),
        (None, "json", None),
    ],
)
def test_data_is_encoded_as_confluent_does(
    data: Any, encoding: Encoding, content: bytes | None
) -> None:
    assert encode(data, encoding, "value") == content


@pytest.mark.parametrize(
    ("data", "encoding"),
    [
        (float("nan"), "json"),
        ("\ud800", "json"),
        ("\ud800", "string"),
        (7, "string"),
        (["a"], "binary"),
        ("AAE", "binary"),
        ("A A=", "binary"),
        ("é", "binary"),
    ],
)
def test_data_that_does_not_fit_its_encoding_is_refused(data: Any, encoding: Encoding) -> None:
    with pytest.raises(AdminError) as refusal:
        encode(data, encoding, "value.data")
    assert (refusal.value.status, refusal.value.field) == (400, "value.data")
