"""The grammar of topic patterns."""

import string

import pytest
from tidemark.re2.syntax import (
    NESTING_MAX,
    PATTERN_CHARS_MAX,
    Assertion,
    Chars,
    Either,
    PatternError,
    Place,
    Repeat,
    Sequence,
    parse,
)

X = Chars(frozenset("x"))
Y = Chars(frozenset("y"))


@pytest.mark.parametrize(
    ("text", "meaning"),
    [
        ("x", X),
        ("xy", Sequence((X, Y))),
        ("x|y", Either((X, Y))),
        ("x*", Repeat(X, 0, None)),
        ("x+?", Repeat(X, 1, None)),
        ("x?", Repeat(X, 0, 1)),
        ("x{3}", Repeat(X, 3, 3)),
        ("x{2,}", Repeat(X, 2, None)),
        ("x{2,5}", Repeat(X, 2, 5)),
        ("(x)", X),
        ("(?:x)", X),
        ("(?P<name>x)", X),
        ("(?<name>x)", X),
        ("^", Assertion(Place.START)),
        (r"\z", Assertion(Place.END)),
        (r"\b", Assertion(Place.BOUNDARY)),
        ("", Sequence(())),
        ("(?i)x", Chars(frozenset("xX"))),
        ("(?i:x)", Chars(frozenset("xX"))),
        ("(?i-i)x", X),
        (r"\x78", X),
        (r"\x{000078}", X),
        (r"\Qxy\E", Sequence((X, Y))),
        ("[x]", X),
        ("[x-y]", Chars(frozenset("xy"))),
        ("[a-]", Chars(frozenset("a-"))),
        ("[^[:alnum:]]", Chars(frozenset(string.ascii_letters + string.digits), is_negated=True)),
        (r"\s", Chars(frozenset(" \t\n\f\r"))),
        ("[[:punct:]]", Chars(frozenset(string.punctuation))),
        (r"[\d_]", Chars(frozenset("0123456789_"))),
        ("é", Chars(frozenset("é"))),
        ("(?i)é", Chars(frozenset("éÉ"))),
        ("(?i)ß", Chars(frozenset("ß"))),
        (".", Chars(frozenset("\n"), is_negated=True)),
        ("[^x]", Chars(frozenset("x"), is_negated=True)),
        (r"[\Dx]", Chars(frozenset("0123456789"), is_negated=True)),
        (r"[5\D]", Chars(frozenset("012346789"), is_negated=True)),
        (r"[\W\D]", Chars(frozenset("0123456789"), is_negated=True)),
        ("(?i)[^[:upper:]]", Chars(frozenset(string.ascii_letters), is_negated=True)),
        ("[α-γ]", Chars(frozenset("αβγ"))),
    ],
)
def test_a_pattern_means(text: str, meaning: object) -> None:
    assert parse(text) == meaning


@pytest.mark.parametrize(
    "text",
    [
        "(",
        ")",
        "x)",
        "[",
        "[x",
        "[]",
        "*",
        "+x",
        "x**",
        "x{2}{3}",
        "x{3,2}",
        "x{1001}",
        "x{99999999999999999999}",
        "\\",
        r"\1",
        r"\p{L}",
        r"\pL",
        r"\k<name>",
        "(?=x)",
        "(?!x)",
        "(?<=x)",
        "(?#x)",
        "(?P<1>x)",
        "[z-a]",
        r"[\x00-\x{80}]",
        "[[:nonsense:]]",
        r"[a-\d]",
        r"\x1",
        r"\xzz",
        r"\x{110000}",
        "(?i)*",
        "x" * (PATTERN_CHARS_MAX + 1),
        "(" * (NESTING_MAX + 1) + ")" * (NESTING_MAX + 1),
    ],
)
def test_what_is_no_pattern_is_refused(text: str) -> None:
    with pytest.raises(PatternError):
        parse(text)


@pytest.mark.parametrize("text", ["x{", "x{}", "x{,3}", "x{a}", "{", "x{1"])
def test_a_brace_that_counts_nothing_stands_for_itself(text: str) -> None:
    parse(text)
