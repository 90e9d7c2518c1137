import pytest
from tidemark.model.config_values import in_ms


@pytest.mark.parametrize(
    ("setting", "synonym", "value", "expected"),
    [
        ("retention.ms", "log.retention.hours", "168", "604800000"),
        ("log.retention.ms", "log.retention.minutes", "2", "120000"),
        ("retention.ms", "log.retention.hours", "-1", "-1"),
        ("retention.ms", "log.retention.ms", "5", "5"),
        ("log.retention.hours", "log.retention.hours", "168", "168"),
    ],
)
def test_a_synonym_in_hours_is_shown_in_the_unit_of_its_setting(
    setting: str, synonym: str, value: str, expected: str
) -> None:
    assert in_ms(setting, synonym, value) == expected
