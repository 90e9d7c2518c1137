"""A call that never comes back fails by name, in time."""

import threading

import confluent_kafka
import pytest
from e2e.bounded_librdkafka import BoundedConsumer, CallNeverCameBackError, within

pytestmark = pytest.mark.e2e


def test_a_call_that_hangs_is_named() -> None:
    never = threading.Event()
    with pytest.raises(CallNeverCameBackError, match=r"Consumer\.close did not come back"):
        within(0.05, "Consumer.close", never.wait)
    never.set()


def test_what_a_call_raises_comes_through() -> None:
    with pytest.raises(KeyError):
        within(5, "commit", lambda: {"there": 1}["missing"])


def test_tests_use_the_bounded_consumer() -> None:
    assert confluent_kafka.Consumer is BoundedConsumer
    reader = confluent_kafka.Consumer({"group.id": "nobody"})
    reader.close()
