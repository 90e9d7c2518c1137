from typing import Any

import pytest
from broker.config import BrokerConfig
from pydantic import ValidationError
from tidemark.runtime.access.authorization_config import STANDARD_AUTHORIZER

ON: dict[str, Any] = {
    "broker_id": 1,
    "listeners": "CLIENT://127.0.0.1:9092,INTERNAL://127.0.0.1:9192",
    "authorizer_class_name": STANDARD_AUTHORIZER,
    "super_users": "User:root; User:admin",
}


def test_without_an_authorizer_there_is_no_policy() -> None:
    assert BrokerConfig(broker_id=1, super_users="User:root").acl_policy is None


def test_super_users_are_separated_by_semicolons_as_kafkas() -> None:
    policy = BrokerConfig(**ON, allow_everyone_if_no_acl_found=True).acl_policy
    assert policy == (frozenset({"User:root", "User:admin"}), True)


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"authorizer_class_name": "kafka.security.auth.SimpleAclAuthorizer"}, "does not exist"),
        ({"super_users": " ; "}, "super.users is empty: nobody could set ACLs"),
        ({"super_users": "root"}, "'root' is no principal: use User:name"),
        ({"super_users": "Process:tidemark"}, "is no principal"),
        ({"listeners": "CLIENT://127.0.0.1:9092"}, "needs a listener INTERNAL"),
    ],
)
def test_a_start_that_would_lock_out_everybody_is_refused(
    changed: dict[str, Any], words: str
) -> None:
    with pytest.raises(ValidationError, match=words):
        BrokerConfig(**{**ON, **changed})
