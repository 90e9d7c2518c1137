"""Patterns compared with Python's ``re``, and patterns with which ``re`` never ends."""

import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.re2.pattern import Pattern, matching
from tidemark.re2.syntax import PatternError

ATOMS = st.sampled_from(
    [
        "a",
        "b",
        "-",
        r"\.",
        ".",
        "[ab]",
        "[^a]",
        "[a-c_]",
        r"\d",
        r"\w",
        r"\W",
        r"[^\w]",
        "^",
        "$",
        r"\b",
    ]
)


def combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.one_of(
        st.tuples(inner, inner).map("".join),
        st.tuples(inner, inner).map(lambda two: f"(?:{two[0]}|{two[1]})"),
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2}", "{1,2}", "{0,}", "*?"])).map(
            lambda two: f"(?:{two[0]}){two[1]}"
        ),
    )


@given(
    text=st.recursive(ATOMS, combined, max_leaves=6),
    name=st.text(alphabet="abc1._- \t\0é", max_size=6),
)
@settings(max_examples=300)
def test_it_matches_what_a_backtracking_matcher_matches(text: str, name: str) -> None:
    expected = re.fullmatch(text, name, re.ASCII) is not None
    assert Pattern(text).matches(name) == expected


@pytest.mark.parametrize(
    ("text", "name", "fits"),
    [
        ("orders", "orders", True),
        ("orders", "orders-v2", False),
        ("orders.*", "orders-v2", True),
        ("topic*", "topic-1", False),
        ("^topic-.*$", "topic-1", True),
        ("(?i)ORDERS", "orders", True),
        ("a|b", "b", True),
        ("(foo|bar)-[0-9]{2}", "bar-07", True),
        ("(foo|bar)-[0-9]{2}", "bar-7", False),
        (r"\Qa.b\E", "a.b", True),
        (r"\Qa.b\E", "axb", False),
        (r"logs\.(eu|us)\..+", "logs.eu.web", True),
        (r".*\bweb\b.*", "logs.web.eu", True),
        (r".*\bweb\b.*", "logs.webs.eu", False),
        ("", "orders", False),
    ],
)
def test_the_whole_name_must_fit(text: str, name: str, fits: bool) -> None:
    assert Pattern(text).matches(name) is fits


@pytest.mark.parametrize(
    "text", ["(a+)+b", "(a|a)*b", "(a*)*b", "a*a*a*a*a*a*a*a*a*a*b", ".*.*.*x"]
)
def test_no_pattern_takes_for_ever(text: str) -> None:
    assert not Pattern(text).matches("a" * 249)


def test_memory_is_bounded_and_forgetting_changes_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tidemark.re2.pattern._STATES_MAX", 2)
    pattern = Pattern("(a|b)*a(a|b){3}")
    names = [f"{number:06b}".replace("0", "a").replace("1", "b") for number in range(64)]
    assert matching(pattern, names) == {name for name in names if name[-4] == "a"}
    assert len(pattern._memory) <= 2


def test_a_pattern_that_writes_out_too_large_is_refused() -> None:
    with pytest.raises(PatternError, match="too large"):
        Pattern("(a{1000}){1000}")
