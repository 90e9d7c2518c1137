"""Order of runs."""

from bench.peers.turns import order_of


def test_every_second_turn_is_reversed() -> None:
    orders = [order_of(["tidemark", "kafka", "nats"], turn) for turn in range(3)]
    assert orders[0] == orders[2] == list(reversed(orders[1]))
