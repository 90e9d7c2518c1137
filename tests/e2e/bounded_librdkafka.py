"""librdkafka waits for a group's coordinator in C without end, where no signal of a test's time
limit is looked at: one lost answer would hold the whole run. Here ``close`` and ``commit`` come
back, or fail by name, as long as they wait without Python's lock. A consumer that its group put out
may hold it in ``close``: such a one gets a process of its own (``hung_member.py``).
"""

import threading
from collections.abc import Callable
from typing import Any

import confluent_kafka

BACK_WITHIN_S = 75.0
_Plain = confluent_kafka.Consumer


class CallNeverCameBackError(AssertionError):
    """A call into librdkafka is still waiting; its thread is left to itself."""


def within(wait_s: float, what: str, call: Callable[[], Any]) -> Any:
    """What ``call`` gives or raises, or CallNeverCameBackError."""
    outcome: list[Any] = []
    problem: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(call())
        except BaseException as raised:  # noqa: BLE001 - raised again in the caller's thread
            problem.append(raised)

    thread = threading.Thread(target=run, name=what, daemon=True)
    thread.start()
    thread.join(wait_s)
    if thread.is_alive():
        raise CallNeverCameBackError(f"librdkafka's {what} did not come back in {wait_s:.0f} s")
    if problem:
        raise problem[0]
    return outcome[0]


class BoundedConsumer(_Plain):
    """confluent_kafka.Consumer whose ``close`` and ``commit`` have a time limit."""

    def close(self) -> None:
        within(BACK_WITHIN_S, "Consumer.close", super().close)

    def commit(self, *args: Any, **options: Any) -> Any:
        call = super().commit
        return within(BACK_WITHIN_S, "Consumer.commit", lambda: call(*args, **options))


def bound_librdkafka() -> None:
    """Every module imported from now on gets the bounded consumer."""
    confluent_kafka.Consumer = BoundedConsumer  # type: ignore[misc]
