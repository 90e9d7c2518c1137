"""Access in a browser: ACLs, users, quotas, and "may X do Y?"."""

from collections.abc import Callable

import pytest
from e2e.clusters import Cluster
from playwright.sync_api import Page, expect
from tidemark.client import sync
from waiting import PATIENCE_S

expect.set_options(timeout=PATIENCE_S * 1_000)


@pytest.fixture
def user(topic_name: Callable[[str], str]) -> str:
    """Name of a user, with markup and a slash."""
    return f"{topic_name('user')}/<b>"


def done(page: Page, sentence: str) -> None:
    expect(page.get_by_role("status").first).to_have_text(sentence)


def confirmed(page: Page, subject: str, button: str, sentence: str) -> None:
    """Remove what the page is about: the button is disabled until its name is typed."""
    expect(page.get_by_role("button", name=button)).to_be_disabled()
    page.locator("#confirm").fill(subject)
    page.get_by_role("button", name=button).click()
    done(page, sentence)


@pytest.mark.feature("AD46")
def test_an_acl_is_added_decides_a_question_and_is_removed(page: Page, user: str) -> None:
    page.goto("/")
    page.keyboard.press("g")
    page.keyboard.press("a")
    page.get_by_role("link", name="Add an ACL").first.click()
    page.locator("#principal").fill(user)
    page.locator("#permission").select_option("DENY")
    page.locator("#pattern_type").select_option("PREFIXED")
    page.locator("#resource_name").fill("secret-")
    page.get_by_role("button", name="Show what it means").click()
    words = f"User:{user} may not READ on every topic whose name begins with secret-"
    expect(page.locator("#difference")).to_contain_text(words)
    line = page.locator(".command code").first
    page.get_by_text("Copy as command").click()
    expect(line).to_have_text(
        f"tidemark acl add 'User:{user}' read --topic secret- --prefixed --deny"
    )
    page.get_by_role("button", name="Add this ACL").click()
    done(page, "The ACL has been added.")
    page.get_by_role("link", name="May X do Y?").click()
    page.locator("#principal").fill(user)
    page.locator("#resource_name").fill("secret-plans")
    page.get_by_role("button", name="Ask").click()
    expect(page.locator("#answer")).to_contain_text("denied by an ACL")
    page.locator("#answer a").click()
    page.get_by_role("row").filter(has_text=user).get_by_role("link", name="Remove").click()
    confirmed(page, f"User:{user}", "Remove the ACL", "The ACL has been removed.")


@pytest.mark.feature("AD46")
def test_a_user_is_added_gets_another_password_and_is_removed(
    console_cluster: Cluster, page: Page, user: str
) -> None:
    page.goto("/access/users")
    page.get_by_role("link", name="Add a user").first.click()
    page.locator("#user").fill(user)
    page.locator("#password").fill("one")
    page.locator("#again").fill("another")
    page.get_by_role("button", name="Add the user").click()
    expect(page.get_by_role("alert")).to_contain_text("the two passwords differ")
    expect(page.locator("#password")).to_have_value("")
    for again in (False, True):
        for field in ("#password", "#again"):
            page.locator(field).fill("secret")
        page.get_by_role("button", name="Set the password" if again else "Add the user").click()
        done(page, "The password has been set.")
        row = page.get_by_role("row").filter(has_text=user)
        expect(row).to_contain_text("SCRAM-SHA-512, 8,192")
        row.get_by_role("link", name="Remove" if again else "Set password").click()
    with sync.Admin(console_cluster.kafka()) as admin:
        assert user in admin.describe_users()
        confirmed(page, user, "Remove the user", "The user has been removed.")
        assert user not in admin.describe_users()


@pytest.mark.feature("AD46")
def test_quotas_are_set_after_their_difference_was_shown(page: Page, user: str) -> None:
    page.goto("/access/quotas")
    page.get_by_role("link", name="Set quotas").first.click()
    page.locator("#user").fill(user)
    expect(page.locator("#ip")).to_be_hidden()
    page.locator("#producer_byte_rate").fill("10485760")
    page.get_by_role("button", name="Show what would change").click()
    expect(page.locator("#difference")).to_contain_text("none → 10485760")
    page.get_by_role("button", name="Set these quotas").click()
    done(page, "The quotas have been set.")
    row = page.get_by_role("row").filter(has_text=user)
    expect(row).to_contain_text("10.0 MiB/s")
    row.get_by_role("link", name="Change").click()
    expect(page.locator("#producer_byte_rate")).to_have_value("10485760")
    page.goto("/access/quotas")
    row.get_by_role("link", name="Remove").click()
    confirmed(page, f"user {user}", "Remove the quotas", "The quotas have been removed.")
