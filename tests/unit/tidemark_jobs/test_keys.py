"""Rules for keys as users write them; tests/spark/test_reshard_columns.py has what they find."""

import pytest
from tidemark_jobs.keys import KeyRule, parse_key
from tidemark_spark.errors import OptionError


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("key", KeyRule("key")),
        ("access-log:user", KeyRule("access-log", "user")),
        ("json:user.id", KeyRule("json", "$.user.id")),
        ("json:$.users[0]['full name']", KeyRule("json", "$.users[0]['full name']")),
        ("field:3", KeyRule("field", "3")),
        ("field:3::", KeyRule("field", "3::")),
        (r"regex:user=(\w+)", KeyRule("regex", r"user=(\w+)")),
        ("regex:(?<user>[a-z]+)", KeyRule("regex", "(?<user>[a-z]+)")),
        ("sql:split(text, ' ')[2]", KeyRule("sql", "split(text, ' ')[2]")),
    ],
)
def test_rules(text: str, rule: KeyRule) -> None:
    assert parse_key(text) == rule


@pytest.mark.parametrize("text", ["key", "json:user.id", "field:2", "field:2:;", "regex:(.)"])
def test_a_rule_survives_as_text(text: str) -> None:
    assert parse_key(str(parse_key(text))) == parse_key(text)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("user", "there is no key rule 'user'"),
        ("", "there is no key rule ''"),
        ("key:user", "takes no argument"),
        ("access-log:browser", "no field 'browser'"),
        ("json:", "not a path"),
        ("json:$.users[*].id", "not a path"),
        ("field:0", "not the number of a field"),
        ("field:third", "not the number of a field"),
        ("regex:user=", "no group"),
        (r"regex:\(user\)", "no group"),
        ("regex:[(]user[)]", "no group"),
        ("regex:(?:user)", "no group"),
        ("sql: ", "needs an expression"),
    ],
)
def test_what_is_no_rule(text: str, what: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_key(text)
    assert what in caught.value.what


def test_an_error_says_what_to_try() -> None:
    with pytest.raises(OptionError, match="try: access-log:host or "):
        parse_key("access-log:")
