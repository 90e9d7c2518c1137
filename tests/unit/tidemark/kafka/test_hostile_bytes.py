"""Whatever the bytes, a decoder answers or raises MalformedRequestError, in bounded memory and
time."""

import random
import tracemalloc
from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tidemark.kafka import long_tail
from tidemark.kafka.apis import APIS, ApiKey
from tidemark.kafka.headers import read_request_header
from tidemark.kafka.primitives import MalformedRequestError
from tidemark.kafka.schemas import load_schema
from unit.tidemark.kafka.catalogue import HAND_WRITTEN, LONG_TAIL, HandWritten
from unit.tidemark.kafka.strategies import message_fields

# The largest decoded form of so few bytes that an honest decoder needs.
PEAK_BYTES_MAX = 1 << 18
EXTREME_LENGTHS = [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0"]


def read_any(key: ApiKey, version: int, direction: str, body: bytes) -> None:
    """Decode with whatever reads this message; only the one error may come out."""
    with suppress(MalformedRequestError):
        for row in HAND_WRITTEN:
            if (row.key, row.direction) == (key, direction):
                row.read(memoryview(body), version)
                return
        if direction == "request":
            long_tail.read_request(key, version, memoryview(body))
        else:
            long_tail.read_response(key, version, memoryview(body))


def spoiled(body: bytes, dice: random.Random) -> bytes:
    """The body with a bit flipped, a length maximal, an end missing, or garbage in the middle."""
    spoilt = bytearray(body or b"\0")
    at = dice.randrange(len(spoilt))
    match dice.randrange(5):
        case 0:
            spoilt[at] ^= 1 << dice.randrange(8)
        case 1:
            del spoilt[at:]
        case 2:
            spoilt[at : at + 4] = dice.choice(EXTREME_LENGTHS)
        case 3:
            spoilt[at : at + 5] = b"\xff\xff\xff\xff\x0f"
        case 4:
            spoilt[at : at + 3] = dice.randbytes(dice.randrange(8))
    return bytes(spoilt)


@pytest.mark.parametrize("under_test", HAND_WRITTEN, ids=str)
@settings(max_examples=12, deadline=None)
@given(data=st.data())
def test_a_spoilt_hand_written_message_is_refused_at_most(
    under_test: HandWritten, data: st.DataObject
) -> None:
    key, direction, messages, write, _ = under_test
    version = data.draw(st.integers(APIS[key].served_min, APIS[key].max))
    body = write(version, data.draw(messages(version)))
    dice = random.Random(data.draw(st.integers(0, 1 << 32)))
    for _ in range(30):
        read_any(key, version, direction, spoiled(body, dice))


@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_a_spoilt_message_of_the_long_tail_is_refused_at_most(data: st.DataObject) -> None:
    key, version = data.draw(st.sampled_from(LONG_TAIL))
    schema = load_schema(key)
    request = long_tail.write_request(
        key, version, data.draw(message_fields(schema.request, version))
    )
    response = long_tail.write_response(
        key, version, data.draw(message_fields(schema.response, version))
    )
    dice = random.Random(data.draw(st.integers(0, 1 << 32)))
    for _ in range(20):
        read_any(key, version, "request", spoiled(request, dice))
        read_any(key, version, "response", spoiled(response, dice))


@pytest.mark.parametrize("key", APIS, ids=lambda key: key.name)
def test_noise_is_refused_at_most(key: ApiKey) -> None:
    dice = random.Random(int(key))
    for version in range(APIS[key].served_min, APIS[key].max + 1):
        for _ in range(15):
            noise = dice.randbytes(dice.randrange(64))
            read_any(key, version, "request", noise)
            read_any(key, version, "response", noise)
            with suppress(MalformedRequestError):
                read_request_header(memoryview(noise))


@pytest.mark.parametrize("fill", [b"\xff", b"\x7f", b"\x01", b"\x00", b"\x02"])
def test_announced_lengths_allocate_nothing(fill: bytes) -> None:
    bodies = [fill * size for size in (1, 5, 64)] + [b"\x7f\xff\xff\xff" + fill * 16]
    directions = ("request", "response")
    warm_up = [(key, APIS[key].max, direction) for key in APIS for direction in directions]
    for key, version, direction in warm_up:
        read_any(key, version, direction, b"")
    tracemalloc.start()
    try:
        for key, version, direction in warm_up:
            for body in bodies:
                read_any(key, version, direction, body)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < PEAK_BYTES_MAX
