import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from typing import Literal

import pytest
from tidemark.cli.config import admin as config_admin
from tidemark.cli.config.admin import change, check_unset
from tidemark.cli.failure import CommandError
from tidemark.client.admin.types import AlterConfig, ClusterDescription, ConfigEntry, ConfigResource
from tidemark.client.config import Address
from tidemark.client.errors import ConnectionLostError
from tidemark.client.wire.metadata_cache import BrokerView
from tidemark.model.errors import ErrorCode
from tidemark.runtime.exit_codes import ExitCode

ORDERS = ConfigResource("topic", "orders")
KNOWN = {"retention.ms": None}


@pytest.mark.feature("AD53")
def test_a_misspelt_setting_is_not_removed_in_silence() -> None:
    with pytest.raises(CommandError, match=r"topic 'orders' has no setting 'retention\.mss'") as no:
        check_unset(ORDERS, [AlterConfig("retention.mss", operation="delete")], KNOWN)
    assert no.value.exit_code is ExitCode.USAGE
    assert no.value.hint


@pytest.mark.parametrize(
    ("resource", "change"),
    [
        (ORDERS, AlterConfig("retention.ms", operation="delete")),
        (ORDERS, AlterConfig("retention.mss", "1")),  # the cluster refuses it, and says why
        (ConfigResource("broker", ""), AlterConfig("log.retention.ms", operation="delete")),
    ],
)
def test_all_other_changes_are_for_the_cluster_to_judge(
    resource: ConfigResource, change: AlterConfig
) -> None:
    check_unset(resource, [change], KNOWN)


class OneBroker:
    """A cluster in which broker 1 alone is alive: it does not know the settings of others."""

    def __init__(self) -> None:
        self.changed: dict[ConfigResource, list[AlterConfig]] = {}

    async def describe_cluster(self) -> ClusterDescription:
        return ClusterDescription("c", 1, (BrokerView(1, Address("a", 9092)),))

    async def describe_configs(
        self, resources: Iterable[ConfigResource]
    ) -> dict[ConfigResource, dict[str, ConfigEntry]]:
        if any(each.name != "1" for each in resources):
            raise ConnectionLostError(ErrorCode.NETWORK_EXCEPTION, "broker 2 is not in the cluster")
        return {each: {"x": ConfigEntry("x", "0", "default")} for each in resources}

    async def alter_configs(
        self, changes: Mapping[ConfigResource, Iterable[AlterConfig]], *, validate_only: bool
    ) -> None:
        assert not validate_only
        self.changed.update({resource: list(each) for resource, each in changes.items()})


@pytest.mark.parametrize(("broker", "before"), [("1", "0"), ("2", None)])
@pytest.mark.parametrize("operation", ["set", "delete"])
def test_a_broker_that_is_not_alive_gets_its_settings_for_its_return(
    broker: str,
    before: str | None,
    operation: Literal["set", "delete"],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = OneBroker()

    @asynccontextmanager
    async def opened(_: str) -> AsyncIterator[OneBroker]:
        yield cluster

    monkeypatch.setattr(config_admin, "open_cluster_admin", opened)
    resource = ConfigResource("broker", broker)
    wanted = [AlterConfig("x", "5" if operation == "set" else None, operation)]
    [row] = asyncio.run(change("a:9092", resource, wanted, validate_only=False))
    assert cluster.changed == {resource: wanted}
    assert (row["before"], row["outcome"]) == (before, "changed")
