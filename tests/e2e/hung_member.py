"""A consumer that reads some records and then hangs: it lives, and polls no more. It has a process
of its own, which is killed: librdkafka may wait without end in ``close`` for a member that was put
out, and holds Python's lock meanwhile.

    python hung_member.py BOOTSTRAP GROUP TOPIC COUNT

Prints its member id once it has COUNT records.
"""

import sys

import confluent_kafka

MAX_POLL_MS = 6_000


def main(bootstrap: str, group: str, topic: str, count: int) -> None:
    member = confluent_kafka.Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": MAX_POLL_MS,
            "max.poll.interval.ms": MAX_POLL_MS,
        }
    )
    member.subscribe([topic])
    read = 0
    while read < count:
        message = member.poll(0.5)
        read += message is not None and message.error() is None
    print(member.memberid(), flush=True)
    sys.stdin.read()  # until whoever started it ends, or ends it


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4]))
