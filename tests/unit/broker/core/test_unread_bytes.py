from broker.core.unread_bytes import ENTRIES_MAX, UnreadBytes


def test_what_the_watermark_passes_is_counted_once() -> None:
    unread = UnreadBytes()
    unread.add(3, 100)
    unread.add(6, 50)
    assert (unread.passed(5), unread.passed(6)) == (100, 50)


def test_a_move_over_batches_of_unknown_size_is_news() -> None:
    assert UnreadBytes().passed(9) == 1


def test_while_the_watermark_stands_still_it_does_not_grow() -> None:
    unread = UnreadBytes()
    for end in range(2 * ENTRIES_MAX):
        unread.add(end, 1)
    assert len(unread) == ENTRIES_MAX
    assert unread.passed(2 * ENTRIES_MAX) == 2 * ENTRIES_MAX
