from tidemark.client.deadline import Deadline


def test_a_deadline_counts_down_to_nothing() -> None:
    deadline = Deadline.after(500, 1_000)
    assert (deadline.left_ms(1_200), deadline.passed(1_200)) == (300, False)
    assert (deadline.left_ms(1_500), deadline.passed(1_500)) == (0, True)
