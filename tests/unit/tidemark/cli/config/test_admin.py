import pytest
from tidemark.cli.config.admin import check_unset
from tidemark.cli.failure import CommandError
from tidemark.client.admin.types import AlterConfig, ConfigResource
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
