"""Names as path segments, and names shown to people."""

from controller.console.names import command, name_of, path, query, segment, visible
from controller.console.routing import find, route
from hypothesis import given
from hypothesis import strategies as st

NAMES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=60),
    st.sampled_from(
        ["", ".", "..", "~", "~.", "a/b", "../..", "<script>", "%2F", "?#&=", "x" * 249]
    ),
)


@given(NAMES)
def test_every_name_is_one_segment_and_comes_back(name: str) -> None:
    text = segment(name)
    assert text not in ("", ".", "..")
    assert not {"/", "?", "#", "<", '"', "'"} & set(text)
    assert name_of(text) == name


@given(NAMES)
def test_a_route_finds_the_name_in_its_path(name: str) -> None:
    routes = [route("groups", None), route("groups/*", None), route("groups/*/reset", None)]
    found = find(routes, path("groups", name, "reset"))
    assert found is not None
    assert found.names == (name,)


def test_a_segment_that_is_not_utf8_matches_nothing() -> None:
    assert find([route("groups/*", None)], "/groups/%ff") is None


def test_what_would_hide_or_reorder_text_is_shown_as_an_escape() -> None:
    assert visible("a\u202eb\u200bc\x00\x1b") == "a\\u202eb\\u200bc\\x00\\x1b"
    assert visible("grüße 你好") == "grüße 你好"


def test_a_command_is_quoted_for_a_shell() -> None:
    line = command("group", "describe", "a b'; rm -rf /")
    assert line == """tidemark group describe 'a b'"'"'; rm -rf /'"""


def test_a_query_leaves_empty_values_out() -> None:
    assert query(q="a&b", page=None, sort="") == "?q=a%26b"
