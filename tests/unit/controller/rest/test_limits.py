"""Token buckets of clients."""

from tidemark.runtime.access.buckets import Buckets


def test_a_client_has_its_rate_and_no_more() -> None:
    buckets = Buckets(10)
    assert [buckets.take("a", 0) for _ in range(12)] == [True] * 10 + [False] * 2
    assert [buckets.take("a", 250) for _ in range(3)] == [True, True, False]


def test_one_client_does_not_use_up_the_rate_of_another() -> None:
    buckets = Buckets(1)
    assert [buckets.take(client, 0) for client in "aab"] == [True, False, True]


def test_the_client_that_was_idle_the_longest_is_forgotten_first() -> None:
    buckets = Buckets(1, clients_max=2)
    for client in "abab":
        buckets.take(client, 0)
    buckets.take("c", 0)
    assert [buckets.take(client, 0) for client in "bc"] == [False, False]
    assert buckets.take("a", 0)
