import pytest
from tidemark.model.topics import TopicPartition, metric_name, topic_name_problem


def test_a_partition_prints_as_its_directory() -> None:
    assert str(TopicPartition("orders", 3)) == "orders-3"


@pytest.mark.parametrize("name", ["orders", "a.b_c-9", "x" * 249, "__consumer_offsets"])
def test_legal_names(name: str) -> None:
    assert topic_name_problem(name) is None


@pytest.mark.parametrize("name", ["", ".", "..", "x" * 250, "a/b", "ü", "a b", "a\n"])
def test_illegal_names_are_refused_in_words(name: str) -> None:
    assert topic_name_problem(name)


def test_names_that_differ_by_dot_and_underscore_collide() -> None:
    assert metric_name("a.b") == metric_name("a_b")
