"""Copies a topic exactly once, in a process of its own: ``python -m chaos.copy_worker '{...}'``.

A member of a group that reads committed records, writes them to another topic, and commits its
offsets in the same transaction. Now and then it stops itself in the middle of one, as a server that
hangs does, until it is woken or killed. What happens is told line by line.
"""

import json
import os
import random
import signal
import sys
import time
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

HANGS: Final = "hangs"
COPIED: Final = "copied"
REFUSED: Final = "refused"
STUCK_S: Final = 25
"""A call may never return: librdkafka waits for ever in send_offsets_to_transaction where the
group's coordinator that it remembers has left the metadata meanwhile (its issues 5511 and 5456).
SIGALRM then ends the process.
"""
_BEFORE: Final = "before the offsets"
_AFTER: Final = "after the offsets"
_BATCH: Final = 50
_POLL_S: Final = 0.5
_CALL_S: Final = 10.0
_AGAIN_S: Final = 0.2
_SLOW_S: Final = 3.0


def say(what: str) -> None:
    """One line."""
    sys.stdout.write(what + "\n")
    sys.stdout.flush()


class Hangs:
    """When to hang next: with records written, before or after the offsets are sent."""

    def __init__(self, dice: random.Random, every_s: float) -> None:
        self._dice, self._every_s = dice, every_s
        # First where a zombie is refused, unless the group did not notice that it was gone.
        self._place = _BEFORE
        self._at = time.monotonic() + dice.uniform(0.2, 0.6) * every_s

    def maybe(self, place: str) -> None:
        """Stop here, if it is time."""
        if self._place == place and time.monotonic() >= self._at:
            say(f"{HANGS} {place}")
            os.kill(os.getpid(), signal.SIGSTOP)
            say(f"woke {place}")
            self._draw()

    def _draw(self) -> None:
        self._place = self._dice.choice((_BEFORE, _AFTER))
        self._at = time.monotonic() + self._dice.uniform(0.5, 1.5) * self._every_s


class Session:
    """A consumer and its producer; given up together when either fails."""

    def __init__(self, plan: dict[str, Any], hangs: Hangs) -> None:
        self._plan, self._hangs = plan, hangs
        self.consumer = Consumer({**plan["common"], **plan["consumer"]})
        self.producer = Producer({**plan["common"], **plan["producer"]})

    def run(self) -> None:
        """Copy until something is refused. Raises KafkaException."""
        insist(lambda: self.producer.init_transactions(_CALL_S))
        self.consumer.subscribe([self._plan["source"]])
        while True:
            messages = self.consumer.consume(_BATCH, _POLL_S)
            for message in messages:
                fail_for_good(message.error())
            records = [message for message in messages if message.error() is None]
            if records and not self._copy(records):
                say("again after a slow end")
                return

    def _copy(self, records: list[Message]) -> bool:
        """One transaction; whether the session may go on (see LibrdkafkaWriter)."""
        signal.alarm(STUCK_S)
        self.producer.begin_transaction()
        for record in records:
            self.producer.produce(self._plan["copy"], key=record.key(), value=record.value())
        self.producer.flush(_CALL_S)
        self._hangs.maybe(_BEFORE)
        offsets = offsets_after(records)
        member = self.consumer.consumer_group_metadata()
        insist(lambda: self.producer.send_offsets_to_transaction(offsets, member, _CALL_S))
        self._hangs.maybe(_AFTER)
        began = time.monotonic()
        insist(lambda: self.producer.commit_transaction(_CALL_S))
        signal.alarm(0)
        say(f"{COPIED} {len(records)}")
        return time.monotonic() - began < _SLOW_S

    def end(self, problem: KafkaError | None) -> None:
        """Leave the group; abort what can be aborted, else the next session's start does it."""
        signal.alarm(STUCK_S)
        if problem is not None and problem.txn_requires_abort():
            try:
                insist(lambda: self.producer.abort_transaction(_CALL_S))
            except KafkaException as refused:
                say(f"abort {REFUSED} {refused.args[0].name()}")
        self.consumer.close()
        signal.alarm(0)


def offsets_after(records: list[Message]) -> list[TopicPartition]:
    """Where to go on, in each partition."""
    ends: dict[tuple[str, int], int] = {}
    for record in records:
        place = str(record.topic()), int(record.partition() or 0)
        ends[place] = int(record.offset() or 0) + 1
    return [TopicPartition(*place, offset) for place, offset in ends.items()]


def insist(call: Any) -> None:
    """Ask again while that may help. Raises KafkaException."""
    while True:
        try:
            call()
        except KafkaException as refused:
            if not refused.args[0].retriable():
                raise
            time.sleep(_AGAIN_S)
        else:
            return


def fail_for_good(error: KafkaError | None) -> None:
    """Raise what the library does not mend by itself."""
    if error is not None and (error.fatal() or error.code() == KafkaError._MAX_POLL_EXCEEDED):
        raise KafkaException(error)


def main() -> None:
    """Session after session, until killed."""
    plan = json.loads(sys.argv[1])
    hangs = Hangs(random.Random(plan["seed"]), plan["hang_every_s"])
    say("ready")
    while True:
        session, problem = Session(plan, hangs), None
        try:
            session.run()
        except KafkaException as refused:
            problem = refused.args[0]
            say(f"{REFUSED} {problem.name()}")
        session.end(problem)


if __name__ == "__main__":
    main()
