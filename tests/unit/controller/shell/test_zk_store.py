from controller.shell.zk_store import BYTES_MAX, OPS_MAX, Put, Remove, Step, chunks
from hypothesis import given, settings
from hypothesis import strategies as st

PUTS = st.builds(
    Put, st.text("/a", min_size=1, max_size=9), st.integers(0, BYTES_MAX // 2).map(bytes)
)
STEPS = st.lists(PUTS | st.builds(Remove, st.text("/a", min_size=1, max_size=9)), max_size=12)


@given(STEPS)
@settings(max_examples=20, deadline=None)
def test_chunks_keep_order_and_fit_in_a_transaction(steps: list[Step]) -> None:
    cut = list(chunks(steps))
    assert [step for chunk in cut for step in chunk] == steps
    for chunk in cut:
        data = sum(len(step.data) for step in chunk if isinstance(step, Put))
        assert data <= BYTES_MAX


def test_a_chunk_leaves_room_for_the_check_of_the_epoch() -> None:
    sizes = [len(chunk) for chunk in chunks([Remove("/x")] * (2 * OPS_MAX))]
    assert sizes == [OPS_MAX - 1, OPS_MAX - 1, 2]
