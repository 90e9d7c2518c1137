import re
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
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
        "(a{,9}){,9}",
        "a*+",
        "a{1001}",
        "a{9999999999}",
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


@pytest.mark.parametrize(
    "pattern", ["a*a*a*b", "a?a?a?a?a?a*a*a*b", "(a*)(a*)(a*)c", ".*.*" + "a" * 200 + ".*b"]
)
def test_no_pattern_takes_long(pattern: str) -> None:
    begun = time.process_time()
    assert not matches(compile_id_pattern(pattern), "a" * ID_CHARS_MAX)
    assert time.process_time() - begun < 0.5


ATOMS = st.sampled_from(["a", "b", ".", "[ab]", "[^a]", r"\w", r"\-", "-", "^", "$", r"\b"])
PLAIN = st.lists(ATOMS, min_size=1, max_size=3).map("".join)
REPEATED = st.builds(
    "{}{}".format,
    ATOMS.filter(lambda one: one not in ("^", "$", r"\b")) | PLAIN.map("({})".format),
    st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{1,2}", "{,2}", "*?", "??"]),
)
SEQUENCES = st.lists(PLAIN | REPEATED, max_size=4).map("".join)
PATTERNS = st.lists(
    SEQUENCES | st.lists(SEQUENCES, max_size=3).map("|".join).map("(?:{})".format), max_size=3
).map("".join)


@given(st.lists(PATTERNS, min_size=1, max_size=2).map("|".join), st.text("ab-", max_size=8))
@settings(max_examples=100, deadline=None)
def test_a_pattern_matches_what_it_matches_by_backtracking(pattern: str, text: str) -> None:
    try:
        compiled = compile_id_pattern(pattern)
    except IdPatternError:
        return  # too many repetitions
    assert compiled.fullmatch(text) == (re.fullmatch(pattern, text) is not None)
