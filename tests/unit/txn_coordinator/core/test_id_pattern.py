import pytest
from txn_coordinator.core.id_pattern import (
    ID_CHARS_MAX,
    PATTERN_CHARS_MAX,
    IdPatternError,
    compile_id_pattern,
    matches,
)


@pytest.mark.parametrize(
    ("pattern", "text"),
    [
        ("payments-.*", "payments-7"),
        ("(a|b)-[0-9]+", "b-42"),
        (r"(?:job)\.\d{1,3}", "job.12"),
        ("[]a]x", "]x"),
        (r"a\-b", "a-b"),
        ("((ab))+", "abab"),
        ("(a+)+b", "aaab"),
        (".*-.*-.*-.*", "a-b-c-d"),
        ("a|b", "b"),
        ("pago-.*", "pago-ñandú"),
        ("(a{,9}){2}", "a{,9}a{,9}"),
    ],
)
def test_a_pattern_matches_whole_ids(pattern: str, text: str) -> None:
    assert matches(compile_id_pattern(pattern), text)
    assert not matches(compile_id_pattern(pattern), f"{text}\n")


@pytest.mark.parametrize(
    "pattern",
    [
        r"(a)\1",
        "(?=a)b",
        "(?<!a)b",
        "(a",
        "a)",
        "*a",
        "[a",
        "a\\",
        "a*+",
        "a{1001}",
        "a{9999999999}",
        "(a{100}){100}",
        "a" * (PATTERN_CHARS_MAX + 1),
    ],
)
def test_what_is_no_pattern_or_takes_long_is_refused(pattern: str) -> None:
    with pytest.raises(IdPatternError):
        compile_id_pattern(pattern)


def test_a_very_long_id_matches_nothing() -> None:
    pattern = compile_id_pattern(".*")
    assert matches(pattern, "a" * ID_CHARS_MAX)
    assert not matches(pattern, "a" * (ID_CHARS_MAX + 1))


@pytest.mark.parametrize("pattern", ["a*a*a*b", "a?a?a?a?a?a*a*a*b", "(a*)*c", ".*.*.*.*x"])
def test_no_pattern_takes_for_ever(pattern: str) -> None:
    assert not matches(compile_id_pattern(pattern), "a" * ID_CHARS_MAX)
