import pytest
from broker.config import BrokerConfig
from broker.read_replica_config import RACK_AWARE
from pydantic import ValidationError


def test_consumers_read_from_leaders_unless_told_otherwise() -> None:
    assert not BrokerConfig(broker_id=1).followers_serve
    assert BrokerConfig(broker_id=1, replica_selector_class=f" {RACK_AWARE}").followers_serve


def test_another_selector_is_refused_by_name() -> None:
    with pytest.raises(ValidationError, match="Nearest does not exist here: use org"):
        BrokerConfig(broker_id=1, replica_selector_class="example.Nearest")
