import gzip
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from tidemark.cli.failure import CommandError
from tidemark.cli.topic.lines import GZIP_START, KeyRule, key_rule, open_lines, parse_pairs
from tidemark.runtime.exit_codes import ExitCode


def test_without_a_rule_records_have_no_key() -> None:
    assert KeyRule().split(b"a\tb", 1) == (None, b"a\tb")


def test_the_key_stands_before_the_first_separator() -> None:
    assert key_rule("\\t", None, None).split(b"k\tv\tw", 1) == (b"k", b"v\tw")


def test_a_pattern_finds_the_key_and_the_value_stays_whole() -> None:
    rule = key_rule(None, r"user-(\d+)", None)
    assert rule.split(b"GET user-17 x", 1) == (b"17", b"GET user-17 x")
    assert key_rule(None, r"user-\d+", None).split(b"GET user-17", 1)[0] == b"user-17"


def test_a_marker_stands_for_null() -> None:
    rule = key_rule(":", None, "NULL")
    assert rule.split(b"k:NULL", 1) == (b"k", None)
    assert rule.split(b"NULL:v", 1) == (None, b"v")


@pytest.mark.parametrize(("separator", "pattern"), [("|", None), (None, "zzz")])
def test_a_line_against_the_rule_is_named(separator: str | None, pattern: str | None) -> None:
    with pytest.raises(CommandError, match=r"line 7 .*'GET /'") as caught:
        key_rule(separator, pattern, None).split(b"GET /", 7)
    assert caught.value.exit_code is ExitCode.DATA


@pytest.mark.parametrize(("separator", "pattern"), [("a", "b"), ("", None), (None, "(")])
def test_rules_that_cannot_be_are_refused(separator: str | None, pattern: str | None) -> None:
    with pytest.raises(CommandError) as caught:
        key_rule(separator, pattern, None)
    assert caught.value.exit_code is ExitCode.USAGE


def test_pairs_are_split_at_the_first_equals_sign() -> None:
    assert parse_pairs(["a=1", "b=x=y", "c="], "-c") == {"a": "1", "b": "x=y", "c": ""}


@pytest.mark.parametrize("text", ["a", "=1", ""])
def test_what_is_no_pair_is_refused(text: str) -> None:
    with pytest.raises(CommandError, match="expected NAME=VALUE"):
        parse_pairs([text], "-c")


def is_a_line(content: bytes) -> bool:
    return not set(content) & set(b"\r\n") and not content.startswith(GZIP_START)


@given(st.lists(st.binary(max_size=20).filter(is_a_line)))
@example([GZIP_START[:2]])
def test_plain_and_gzip_files_give_the_same_lines(
    tmp_path_factory: pytest.TempPathFactory, lines: list[bytes]
) -> None:
    directory = tmp_path_factory.mktemp("lines")
    content = b"".join(line + b"\n" for line in lines)
    (directory / "a").write_bytes(content)
    (directory / "b").write_bytes(gzip.compress(content))
    for name in ("a", "b"):
        with open_lines(str(directory / name)) as source:
            assert list(source) == lines
            assert source.position_bytes == source.size_bytes


def test_line_ends_of_windows_and_a_missing_last_one_are_understood(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(b"a\r\nb")
    with open_lines(str(path)) as source:
        assert list(source) == [b"a", b"b"]


WHOLE = gzip.compress(b"x" * 10_000, mtime=0)


@pytest.mark.parametrize(
    "content",
    [
        pytest.param(WHOLE[:-10], id="cut off"),
        pytest.param(WHOLE[:10] + b"\xff" + WHOLE[11:], id="no deflate block"),
        pytest.param(WHOLE[:-8] + b"\0" + WHOLE[-7:], id="wrong crc"),
    ],
)
def test_a_damaged_gzip_file_is_told_as_such(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.gz"
    path.write_bytes(content)
    with pytest.raises(CommandError, match="is damaged") as caught, open_lines(str(path)) as source:
        list(source)
    assert caught.value.exit_code is ExitCode.DATA


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    missing = open_lines(str(tmp_path / "none"))
    with pytest.raises(CommandError, match=r"cannot read .*none") as caught, missing:
        pass
    assert caught.value.exit_code is ExitCode.NO_INPUT
