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
        ("a|b", "b"),
    ],
)
def test_a_pattern_matches_whole_ids(pattern: str, text: str) -> None:
    assert compile_id_pattern(pattern).fullmatch(text)


@pytest.mark.parametrize(
    "pattern",
    [
        "(a+)+b",
        "(a|aa)*b",
        "((a*)b)*",
        r"(a)\1",
        "(?=a)b",
        "(?<!a)b",
        "(a",
        "a)",
        "*a",
        "[a",
        "a\\",
        ".*.*.*.*x",
        "a?" * 9,
        "a" * (PATTERN_CHARS_MAX + 1),
    ],
)
def test_patterns_that_may_take_long_are_refused(pattern: str) -> None:
    with pytest.raises(IdPatternError):
        compile_id_pattern(pattern)


def test_a_very_long_id_matches_nothing() -> None:
    pattern = compile_id_pattern(".*")
    assert matches(pattern, "a" * ID_CHARS_MAX)
    assert not matches(pattern, "a" * (ID_CHARS_MAX + 1))
