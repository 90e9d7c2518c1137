from types import SimpleNamespace
from typing import Any

import pytest
from tidemark.model.authorization import (
    Authorizer,
    Operation,
    Requester,
    Resource,
    transactional_id_resource,
)
from tidemark.model.errors import ErrorCode, TidemarkError
from tidemark_wire.v1 import txn_pb2 as pb
from txn_coordinator.shell.rpc.call import check_allowed


class WritersOfOne(Authorizer):
    """Authorizer that allows one transactional id only."""

    def authorize(self, requester: Requester, operation: Operation, resource: Resource) -> bool:
        allowed = super().authorize(requester, operation, resource)
        return allowed and resource == transactional_id_resource("allowed")


def test_a_transactional_id_is_checked() -> None:
    node: Any = SimpleNamespace(authorizer=WritersOfOne())
    request = pb.EndTransactionRequest()
    check_allowed(node, request, Operation.WRITE, "allowed")
    with pytest.raises(TidemarkError, match="User:ANONYMOUS may not WRITE denied") as refused:
        check_allowed(node, request, Operation.WRITE, "denied")
    assert refused.value.code is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
