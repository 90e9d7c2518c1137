"""Dead letters in the browser: those that wait, with the reason, and those in the queue."""

import pytest
from e2e.clusters import Cluster
from e2e.dead_letters import Letters
from playwright.sync_api import Page, expect
from waiting import PATIENCE_S, wait_for

expect.set_options(timeout=PATIENCE_S * 1_000)


@pytest.mark.feature("AD45")
def test_letters_that_wait_are_shown_with_the_reason_and_read_once_there_is_a_queue(
    console_cluster: Cluster, page: Page
) -> None:
    letters = Letters(console_cluster, queue=None)
    member = letters.member()
    assert member.take(0) == [(0, 9, 1)]
    letters.reject(member, (2, 4))
    wait_for(lambda: letters.archiving() == 3, letters.problem)
    page.goto(f"/share-groups/{letters.group}")
    page.locator(".actions").get_by_role("link", name="Dead letters").click()
    waiting = page.get_by_role("row").filter(has_text=f"{letters.topic}-0")
    expect(waiting).to_contain_text("3 records")
    expect(waiting).to_contain_text(f"there is no topic {letters.queue}")
    expect(page.locator("main")).to_contain_text("The queue does not exist.")
    letters.mend(None)
    letters.wait_for_letters([2, 3, 4])
    _read_letter(page, letters)
    letters.end()


def _read_letter(page: Page, letters: Letters) -> None:
    page.reload()
    expect(page.locator("main")).to_contain_text("No letter waits")
    row = page.get_by_role("row").filter(has_text=f"{letters.topic}-0, offset 3")
    expect(row).to_contain_text("Offset rejected by client.")
    row.get_by_role("link", name="partition 0").click()
    letter = page.locator(".record").filter(has_text="k3").first
    letter.locator("summary").click()
    expect(letter.locator("pre").nth(1)).to_have_text("v3")


@pytest.mark.feature("AD45")
def test_a_share_group_without_a_queue_has_no_link_to_letters(
    console_cluster: Cluster, page: Page
) -> None:
    letters = Letters(console_cluster)
    letters.configure(errors_deadletterqueue_topic_name="")
    page.goto(f"/share-groups/{letters.group}")
    expect(page.get_by_role("heading", level=1)).to_have_text(letters.group)
    expect(page.locator(".actions").get_by_role("link", name="Dead letters")).to_have_count(0)
    letters.end()
