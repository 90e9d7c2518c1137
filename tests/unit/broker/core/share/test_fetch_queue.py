"""Waiting fetches keep the order of their arrival at each share-partition."""

from broker.core.share.fetch_queue import FetchQueue


def queue_of(**fetches: str) -> FetchQueue[str]:
    queue: FetchQueue[str] = FetchQueue()
    for name, keys in fetches.items():
        queue.park(name, keys)
    queue.check()
    return queue


def test_fetches_are_found_in_the_order_of_their_arrival() -> None:
    queue = queue_of(a="xy", b="x", c="y")
    assert (queue.waiting("x"), queue.waiting("y")) == (("a", "b"), ("a", "c"))
    assert (len(queue), "a" in queue, queue.has("z")) == (3, True, False)


def test_a_fetch_that_leaves_names_what_nothing_waits_for_now() -> None:
    queue = queue_of(a="xy", b="x")
    assert queue.leave("a") == ["y"]
    assert queue.leave("a") == []
    assert queue.leave("b") == ["x"]
    queue.check()
    assert queue.waiting("x") == ()
