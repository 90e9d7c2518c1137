from controller.core.effects import QuotaResult, QuotaResults, Reply
from controller.core.inputs import AlterQuotas, QuotaAlteration, RequestHeader
from controller.shell import znodes
from controller.shell.quota_mapping import read_quota_changes, write_altered_quotas
from tidemark.model.errors import ErrorCode
from tidemark.model.quotas import DEFAULT, QuotaEntity
from tidemark.runtime import zk_paths
from tidemark.runtime.quotas_wire import write_entity
from tidemark_wire.v1 import controller_pb2 as pb
from unit.controller.worlds import NEVER

HEADER = RequestHeader(1, NEVER)
ENTITY = QuotaEntity("alice", DEFAULT)


def test_a_request_is_read_with_its_defaults() -> None:
    wire = pb.AlterQuotasRequest
    entry = wire.Entry(entity=write_entity(ENTITY), values={"a": 1.5}, removed=["b"])
    request = wire(entries=[entry], validate_only=True)
    expected = AlterQuotas(HEADER, (QuotaAlteration(ENTITY, {"a": 1.5}, ("b",)),), True)
    assert read_quota_changes(request)(HEADER) == expected


def test_each_entry_has_its_result_and_a_failed_request_has_none() -> None:
    results = QuotaResults((QuotaResult(), QuotaResult(ErrorCode.INVALID_REQUEST, "no")))
    first, second = write_altered_quotas(Reply(1, result=results), "").results
    assert (first.error_code, second.error_code, second.error_message) == (0, 42, "no")
    failed = write_altered_quotas(Reply(1, ErrorCode.NOT_CONTROLLER), "c:1")
    assert (failed.error_code, failed.controller_hint, list(failed.results)) == (41, "c:1", [])


def test_a_znode_has_the_entity_and_its_values() -> None:
    content = zk_paths.decode("/quotas/x", znodes.write_quotas(ENTITY, {"a": 1.5}))
    assert znodes.read_quotas(content) == (ENTITY, {"a": 1.5})
    assert zk_paths.quotas(ENTITY) != zk_paths.quotas(QuotaEntity("alice"))
