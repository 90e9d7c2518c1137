"""The order of one connection's requests, checked by a client that reads what has taken effect."""

import pytest
from broker.core.request_order import RequestOrder
from hypothesis import given
from hypothesis import strategies as st
from tidemark.kafka.apis import ApiKey

PRODUCE, FETCH = int(ApiKey.PRODUCE), int(ApiKey.FETCH)
OTHERS = [int(ApiKey.METADATA), int(ApiKey.DELETE_RECORDS), int(ApiKey.JOIN_GROUP)]


@pytest.mark.parametrize("waiting", [PRODUCE, FETCH])
@pytest.mark.parametrize("following", [PRODUCE, FETCH, *OTHERS])
def test_nothing_waits_for_the_answer_of_a_produce_or_a_fetch(waiting: int, following: int) -> None:
    order = RequestOrder()
    order.waits(waiting, "place")
    assert order.may_begin(following)


@pytest.mark.parametrize("following", [PRODUCE, FETCH, *OTHERS])
def test_nothing_begins_before_any_other_request_is_answered(following: int) -> None:
    order = RequestOrder()
    order.waits(int(ApiKey.CREATE_TOPICS), "place")
    assert not order.may_begin(following)
    order.answered("another place")
    assert not order.may_begin(following)
    order.answered("place")
    assert order.may_begin(following)


def test_only_produces_pass_a_produce_that_is_not_in_the_log_yet() -> None:
    order = RequestOrder()
    order.append_began()
    order.append_began()
    order.append_ended()
    assert order.may_begin(PRODUCE)
    assert not any(order.may_begin(one) for one in (FETCH, *OTHERS))
    order.append_ended()
    assert order.may_begin(FETCH)


REQUESTS = st.lists(
    st.tuples(
        st.sampled_from(["fetch", "produce", "slow produce", "other", "slow other"]),
        st.integers(0, 3),
    ),
    max_size=30,
)


@given(REQUESTS)
def test_effects_are_in_the_order_of_requests(requests: list[tuple[str, int]]) -> None:
    """Slow requests take effect some turns later. Every request but a produce must see the effects
    of all earlier ones.
    """
    order, begun, due, applied = RequestOrder(), 0, dict[int, int](), set[int]()
    for now in range(200):
        for number in [one for one, at in due.items() if at <= now]:
            del due[number]
            applied.add(number)
            if requests[number][0] == "slow produce":
                order.append_ended()
            else:
                order.answered(number)
        while begun < len(requests):
            kind, delay = requests[begun]
            key = {"fetch": FETCH, "other": OTHERS[0], "slow other": OTHERS[1]}.get(kind, PRODUCE)
            if not order.may_begin(key):
                break
            before = set(range(begun)) - applied
            assert all(requests[one][0] == "slow produce" for one in before)
            assert not before or key == PRODUCE
            if kind == "slow produce":
                order.append_began()
                due[begun] = now + delay
            elif kind == "slow other":
                order.waits(key, begun)
                due[begun] = now + delay
            else:
                applied.add(begun)
            begun += 1
    assert len(applied) == len(requests)
    assert order.is_open
