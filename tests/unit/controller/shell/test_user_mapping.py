from controller.core.effects import Reply, UserResult, UserResults
from controller.core.inputs import AlterUsers, CredentialRef, NewCredential, RequestHeader
from controller.shell.user_mapping import read_user_changes, write_altered_users
from tidemark.model.errors import ErrorCode
from tidemark.model.scram import ScramMechanism, credential_from
from tidemark.runtime.users_wire import write_credential
from tidemark_wire.v1 import controller_pb2 as pb
from unit.controller.worlds import NEVER

HEADER = RequestHeader(1, NEVER)
CREDENTIAL = credential_from(ScramMechanism.SCRAM_SHA_256, b"salted", bytes(16), 8_192)


def test_a_request_is_read_and_an_unknown_mechanism_is_left_to_the_decision() -> None:
    wire, newer = pb.AlterUsersRequest, pb.ScramCredential(mechanism=9)
    request = wire(
        deletions=[wire.Deletion(user="a", mechanism=2)],
        upsertions=[
            wire.Upsertion(user="b", credential=write_credential(CREDENTIAL)),
            wire.Upsertion(user="c", credential=newer),
        ],
    )
    named = (NewCredential("b", CREDENTIAL), NewCredential("c", None))
    assert read_user_changes(request)(HEADER) == AlterUsers(HEADER, (CredentialRef("a", 2),), named)


def test_each_user_has_its_result_and_a_failed_request_has_none() -> None:
    results = UserResults((UserResult("a", ErrorCode.RESOURCE_NOT_FOUND, "no"),))
    (one,) = write_altered_users(Reply(1, result=results), "").results
    assert (one.user, one.error_code, one.error_message) == ("a", 91, "no")
    failed = write_altered_users(Reply(1, ErrorCode.NOT_CONTROLLER), "c:1")
    assert (failed.error_code, failed.controller_hint, list(failed.results)) == (41, "c:1", [])
