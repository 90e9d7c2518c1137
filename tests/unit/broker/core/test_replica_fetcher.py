"""ReplicaFetcher: the content of its requests, their session, and partitions left out."""

from broker.core.replica_fetcher import FetchAsk, ReplicaFetcher
from tidemark.model.ids import InstantMs, Offset
from unit.broker.core.replicated import follower

NOW = InstantMs(1_000)


def asked(ask: FetchAsk | None) -> list[int]:
    assert ask is not None
    return [one.partition for topic in ask.topics for one in topic.partitions]


def fetcher(*numbers: int) -> ReplicaFetcher:
    made = ReplicaFetcher(partition_bytes_max=1_024)
    for number in numbers:
        made.add(follower(number))
    return made


def key(number: int) -> tuple[bytes, int]:
    partition = follower(number)
    return partition.topic_id, number


def test_a_new_session_names_every_partition() -> None:
    ask = fetcher(0, 1).request(NOW)
    assert ask is not None
    assert (ask.session_id, ask.session_epoch, asked(ask)) == (0, 0, [0, 1])


def test_in_a_session_only_what_moved_is_named() -> None:
    made = fetcher(0, 1)
    made.request(NOW)
    made.answered(77)
    made.moved(key(1))  # type: ignore[arg-type]
    ask = made.request(NOW)
    assert ask is not None
    assert (ask.session_id, ask.session_epoch, asked(ask)) == (77, 1, [1])


def test_after_an_answer_only_what_has_another_position_is_named() -> None:
    made = fetcher(0, 1, 2)
    made.request(NOW)
    gained, cleaned = made.partition(key(1)), made.partition(key(2))  # type: ignore[arg-type]
    assert gained is not None
    assert cleaned is not None
    gained.bounds.log_end = Offset(7)
    cleaned.bounds.log_end = Offset(3)
    cleaned.bounds.start_moved(3)
    for number in (0, 1, 2):
        made.took(key(number), 5)  # type: ignore[arg-type]
    made.answered(77)
    assert asked(made.request(NOW)) == [1, 2]
    made.took(key(1), 6)  # type: ignore[arg-type]  # only the high watermark is new
    made.answered(77)
    assert asked(made.request(NOW)) == []


def test_a_partition_that_goes_is_forgotten_in_the_session() -> None:
    made = fetcher(0, 1)
    made.request(NOW)
    made.answered(77)
    made.remove(key(1))  # type: ignore[arg-type]
    ask = made.request(NOW)
    assert ask is not None
    assert [partitions for _, _, partitions in ask.forgotten] == [[1]]


def test_one_that_failed_is_left_out_until_its_time() -> None:
    made = fetcher(0, 1)
    made.request(NOW)
    made.answered(77)
    made.back_off(key(1), InstantMs(NOW + 100))  # type: ignore[arg-type]
    ask = made.request(NOW)
    assert ask is not None
    assert [partitions for _, _, partitions in ask.forgotten] == [[1]]
    made.answered(77)
    assert made.next_due() == NOW + 100
    assert asked(made.request(InstantMs(NOW + 100))) == [1]


def test_news_of_it_end_the_wait() -> None:
    made = fetcher(0)
    made.request(NOW)
    made.back_off(key(0), InstantMs(NOW + 100))  # type: ignore[arg-type]
    assert made.request(NOW) is None
    made.add(follower(0))
    assert asked(made.request(NOW)) == [0]


def test_without_a_session_every_request_is_whole() -> None:
    made = fetcher(0, 1)
    made.request(NOW)
    made.answered(0)
    assert asked(made.request(NOW)) == [0, 1]


def test_a_broken_connection_begins_a_new_session() -> None:
    made = fetcher(0, 1)
    made.request(NOW)
    made.answered(77)
    made.failed()
    ask = made.request(NOW)
    assert ask is not None
    assert (ask.session_id, ask.session_epoch, asked(ask)) == (0, 0, [0, 1])


def test_an_answer_counts_under_the_epoch_it_was_asked_for() -> None:
    made = fetcher(0)
    assert made.asked_epoch(key(0)) == -1  # type: ignore[arg-type]
    made.request(NOW)
    assert made.asked_epoch(key(0)) == 5  # type: ignore[arg-type]


def test_what_is_held_comes_back_in_its_time_and_the_session_stays() -> None:
    made = fetcher(0)
    made.request(NOW)
    made.answered(77)
    made.hold([key(0)], InstantMs(NOW + 100))  # type: ignore[list-item]
    assert made.request(NOW) is None
    assert made.next_due() == NOW + 100
    ask = made.request(InstantMs(NOW + 100))
    assert ask is not None
    assert (ask.session_id, asked(ask), ask.forgotten) == (77, [0], [])


def test_a_debt_that_is_not_paid_holds_longer() -> None:
    made = fetcher(0)
    made.request(NOW)
    made.hold([key(0)], InstantMs(NOW + 100))  # type: ignore[list-item]
    made.hold([key(0)], InstantMs(NOW + 200))  # type: ignore[list-item]
    assert made.request(InstantMs(NOW + 100)) is None
    assert asked(made.request(InstantMs(NOW + 200))) == [0]


def test_one_in_sync_is_never_held() -> None:
    made = fetcher(0, 1)
    made.request(NOW)
    made.answered(0)
    made.took(key(0), 0)  # type: ignore[arg-type]
    made.took(key(1), 1)  # type: ignore[arg-type]
    made.hold([key(0), key(1)], InstantMs(NOW + 100))  # type: ignore[list-item]
    assert asked(made.request(NOW)) == [0]
    made.add(made.partition(key(0)))  # type: ignore[arg-type]  # anew: nothing is known of it
    made.hold([key(0)], InstantMs(NOW + 100))  # type: ignore[list-item]
    assert made.request(NOW) is None
