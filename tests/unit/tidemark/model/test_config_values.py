import pytest
from tidemark.model.broker_configs import connections_by_address
from tidemark.model.config_values import InvalidConfigError, in_ms, integer


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


def test_a_number_with_more_digits_than_python_reads_is_refused_as_any_other() -> None:
    for text in ("9" * 5_000, "-" + "9" * 5_000):
        with pytest.raises(InvalidConfigError, match="at most 2147483647"):
            integer(0).parse(text)
    with pytest.raises(InvalidConfigError, match="the count must be at most"):
        connections_by_address("10.0.0.1:" + "9" * 5_000)
