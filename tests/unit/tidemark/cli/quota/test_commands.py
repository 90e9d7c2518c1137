import pytest
from tidemark.cli.failure import CommandError
from tidemark.cli.quota.admin import name_of
from tidemark.cli.quota.commands import named, part_of, value_of
from tidemark.model.quotas import DEFAULT, QuotaEntity

ALICE, HOME = QuotaEntity("alice"), QuotaEntity(ip="::1")


def test_a_part_is_a_name_the_default_or_absent() -> None:
    assert part_of("user", "alice", is_default=False) == "alice"
    assert part_of("user", None, is_default=True) == DEFAULT
    assert part_of("user", None, is_default=False) is None
    with pytest.raises(CommandError, match="exclude one another"):
        part_of("user", "alice", is_default=True)
    with pytest.raises(CommandError, match="the user is empty"):
        part_of("user", "", is_default=False)


def test_a_quota_belongs_to_somebody() -> None:
    assert named(ALICE) == ALICE
    with pytest.raises(CommandError, match="whose quotas"):
        named(QuotaEntity())
    assert name_of(QuotaEntity("alice", DEFAULT)) == "user alice, client-id <default>"


@pytest.mark.parametrize(
    ("entity", "text", "message"),
    [
        (ALICE, "producer_byte_rate", "is not KEY=VALUE"),
        (ALICE, "producer_byte_rate=much", "is not KEY=VALUE"),
        (ALICE, "producer_byte_rate=1.5", "fractional"),
        (ALICE, "rate=1", "Invalid configuration key rate"),
        (HOME, "request_percentage=5", "Invalid configuration key"),
        (HOME, "producer_byte_rate=1", "Invalid configuration key"),
    ],
)
def test_values_that_are_refused_before_they_are_sent(
    entity: QuotaEntity, text: str, message: str
) -> None:
    with pytest.raises(CommandError, match=message):
        value_of(entity, text)
    assert value_of(ALICE, "controller_mutation_rate=2.5") == ("controller_mutation_rate", 2.5)
