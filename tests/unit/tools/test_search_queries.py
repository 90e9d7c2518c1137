import hashlib
from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st
from search_queries import KEY_FIELD, search_queries


@given(count=st.integers(0, 300), seed=st.integers(0, 2**32))
@settings(max_examples=25)
def test_the_same_seed_makes_the_same_lines(count: int, seed: int) -> None:
    lines = list(search_queries(count, seed=seed))
    assert len(lines) == count
    assert lines == list(search_queries(count, seed=seed))


def test_the_lines_are_the_same_on_every_machine() -> None:
    text = "\n".join(search_queries(1_000, seed=7))
    assert hashlib.sha256(text.encode()).hexdigest()[:16] == "7590148164363c0a"


def test_every_line_names_its_user() -> None:
    fields = [line.split("\t") for line in search_queries(200, seed=1)]
    assert all(len(words) == 4 for words in fields)
    assert all(words[KEY_FIELD - 1].startswith("user-") for words in fields)


def test_persistent_users_repeat_whole_lines() -> None:
    counts = Counter(search_queries(5_000, seed=7))
    assert sum(count > 1 for count in counts.values()) > 100
