"""APIs for operators, asked by unmodified clients of a real cluster: levels of loggers."""

from collections.abc import Iterator

import pytest
from e2e.clusters import Cluster
from kafka.admin import ConfigResource, ConfigResourceType, KafkaAdminClient

pytestmark = [pytest.mark.e2e]

LOGGER = "broker.shell.listener.connection"


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[KafkaAdminClient]:
    client = KafkaAdminClient(bootstrap_servers=cluster.bootstrap)
    yield client
    client.close()


def level_of(admin: KafkaAdminClient, broker: str) -> str:
    resource = ConfigResource(ConfigResourceType.BROKER_LOGGER, broker)
    (described,) = admin.describe_configs([resource], config_filter="all").values()
    level: str = described[broker][LOGGER]["value"]
    return level


@pytest.mark.feature("Y01")
def test_the_level_of_a_logger_is_set_on_one_broker(admin: KafkaAdminClient) -> None:
    assert (level_of(admin, "1"), level_of(admin, "2")) == ("INFO", "INFO")
    for change, after in ((("SET", "DEBUG"), "DEBUG"), (("DELETE", None), "INFO")):
        altered = ConfigResource(ConfigResourceType.BROKER_LOGGER, "2", {LOGGER: change})
        admin.alter_configs([altered])
        assert (level_of(admin, "1"), level_of(admin, "2")) == ("INFO", after)
