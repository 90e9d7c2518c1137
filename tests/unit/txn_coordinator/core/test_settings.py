import pytest
from txn_coordinator.core.settings import TxnSettings


def test_the_defaults_are_kafkas() -> None:
    settings = TxnSettings()
    assert settings.transaction_max_timeout_ms == 900_000
    assert settings.transactional_id_expiration_ms == 604_800_000
    assert settings.expiry_interval_ms == 3_600_000


def test_a_limit_of_0_fails() -> None:
    with pytest.raises(AssertionError):
        TxnSettings(writers_max=0)
