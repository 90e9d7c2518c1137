"""The states of a login, with a mechanism whose first token is a user and whose second is a yes."""

import pytest
from broker.core.login import (
    Later,
    Login,
    LoginFailedError,
    LoginRules,
    Stage,
    Step,
    TokenAnswer,
    Verdict,
)
from tidemark.kafka.apis import ApiKey
from tidemark.model.errors import ErrorCode
from tidemark.model.ids import InstantMs

T0 = InstantMs(1_000)
DEADLINE_MS, LIFETIME_MS = 500, 60_000
FIRST, OTHER = "SCRAM-SHA-256", "SCRAM-SHA-512"
VERSIONS, HANDSHAKE = ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE
AUTHENTICATE = ApiKey.SASL_AUTHENTICATE


class SaysYes:
    token_bytes_max = 100

    def __init__(self, mechanism: str) -> None:
        self.claimed = ""

    def step(self, token: bytes) -> Step | Later:
        if token == b"later":
            return Later(lambda: answered_later(Step(b"welcome", "alice")))
        if not self.claimed:
            self.claimed = token.decode()
            return Step(b"go on")
        if token != b"yes":
            raise LoginFailedError("no")
        return Step(b"welcome", self.claimed)


async def answered_later(step: Step) -> Step:
    return step


def at(passed_ms: int) -> InstantMs:
    return InstantMs(T0 + passed_ms)


def a_login(lifetime_ms: int = 0) -> Login:
    return Login(LoginRules((FIRST, OTHER), DEADLINE_MS, lifetime_ms, SaysYes), T0)


def answered(
    login: Login, user: str = "alice", said: bytes = b"yes", *, mechanism: str = FIRST, ms: int = 0
) -> TokenAnswer:
    """The last answer to a whole exchange."""
    assert login.on_handshake(mechanism, 1, at(ms)).error_code is ErrorCode.NONE
    first = now(login.on_token(user.encode(), at(ms)))
    return first if first.error_code else now(login.on_token(said, at(ms)))


def now(answer: TokenAnswer | Later) -> TokenAnswer:
    assert isinstance(answer, TokenAnswer)
    return answer


def verdicts(login: Login, ms: int = 0) -> list[Verdict]:
    keys = (VERSIONS, HANDSHAKE, AUTHENTICATE, ApiKey.METADATA, ApiKey.PRODUCE)
    return [login.judge(key, at(ms)) for key in keys]


LOGIN, SERVE, ILLEGAL, EXPIRED = Verdict.LOGIN, Verdict.SERVE, Verdict.ILLEGAL, Verdict.EXPIRED


def test_what_may_be_sent_at_each_stage() -> None:
    login = a_login()
    assert verdicts(login) == [SERVE, LOGIN, ILLEGAL, ILLEGAL, ILLEGAL]
    login.on_handshake(FIRST, 1, T0)
    assert verdicts(login) == [ILLEGAL, ILLEGAL, LOGIN, ILLEGAL, ILLEGAL]
    login.on_token(b"alice", T0)
    assert verdicts(login) == [ILLEGAL, ILLEGAL, LOGIN, ILLEGAL, ILLEGAL]
    assert login.user is None
    login.on_token(b"yes", T0)
    assert verdicts(login, 10**9) == [SERVE] * 5
    assert str(login.user) == "alice"


def test_a_refused_proof_ends_the_login_and_says_nothing_of_the_reason() -> None:
    login = a_login()
    answer = answered(login, said=b"no")
    assert answer.error_code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert answer.message is not None
    assert answer.message.endswith("invalid credentials with SASL mechanism SCRAM-SHA-256")
    assert (answer.token, login.user, verdicts(login)) == (b"", None, [ILLEGAL] * 5)


def test_a_token_that_is_too_long_is_not_parsed() -> None:
    login = a_login()
    login.on_handshake(FIRST, 1, T0)
    answer = now(login.on_token(bytes(SaysYes.token_bytes_max + 1), T0))
    assert answer.error_code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert login.claimed == ""


def test_a_mechanism_that_is_not_enabled_ends_the_login_with_those_that_are() -> None:
    login = a_login()
    answer = login.on_handshake("PLAIN", 1, T0)
    assert answer == (ErrorCode.UNSUPPORTED_SASL_MECHANISM, (FIRST, OTHER))
    assert verdicts(login) == [ILLEGAL] * 5


def test_tokens_have_no_header_after_a_handshake_of_version_0() -> None:
    login = a_login()
    login.on_handshake(FIRST, 0, T0)
    assert login.awaits_raw
    login.on_token(b"alice", T0)
    login.on_token(b"yes", T0)
    assert (login.awaits_raw, login.user) == (False, "alice")


def test_a_login_has_a_deadline_and_an_open_connection_has_none() -> None:
    login = a_login()
    assert [login.is_overdue(at(ms)) for ms in (0, DEADLINE_MS - 1, DEADLINE_MS)] == [0, 0, 1]
    answered(login)
    assert not login.is_overdue(at(10**9))


def test_a_session_expires_unless_the_client_authenticates_again() -> None:
    login = a_login(LIFETIME_MS)
    assert answered(login).lifetime_ms == LIFETIME_MS
    assert verdicts(login, LIFETIME_MS - 1) == [SERVE, LOGIN, SERVE, SERVE, SERVE]
    assert verdicts(login, LIFETIME_MS) == [EXPIRED, LOGIN, EXPIRED, EXPIRED, EXPIRED]
    assert answered(login, ms=LIFETIME_MS).error_code is ErrorCode.NONE
    assert (login.repeated, login.user) == (True, "alice")
    assert verdicts(login, 2 * LIFETIME_MS - 1)[3] is SERVE
    assert verdicts(login, 2 * LIFETIME_MS)[3] is EXPIRED


def test_nothing_is_served_while_a_client_authenticates_again() -> None:
    login = a_login(LIFETIME_MS)
    answered(login)
    login.on_handshake(FIRST, 1, at(5_000))
    assert verdicts(login, 5_000) == [ILLEGAL, ILLEGAL, LOGIN, ILLEGAL, ILLEGAL]
    assert login.is_overdue(at(5_000 + DEADLINE_MS))


@pytest.mark.parametrize(
    ("user", "mechanism"), [("mallory", FIRST), ("alice", OTHER)], ids=["user", "mechanism"]
)
def test_user_and_mechanism_stay_the_same(user: str, mechanism: str) -> None:
    login = a_login(LIFETIME_MS)
    answered(login)
    refused = answered(login, user, mechanism=mechanism, ms=5_000)
    assert refused.error_code is ErrorCode.SASL_AUTHENTICATION_FAILED
    assert (login.user, login.stage) == ("alice", Stage.FAILED)


def test_a_connection_does_not_authenticate_more_often_than_once_a_second() -> None:
    login = a_login(LIFETIME_MS)
    answered(login)
    assert [login.judge(HANDSHAKE, at(ms)) for ms in (999, 1_000)] == [SERVE, LOGIN]


def test_nothing_is_taken_while_a_mechanism_checks_and_its_outcome_decides() -> None:
    for outcome, stage in (
        (Step(b"", "alice"), Stage.OPEN),
        (LoginFailedError("no"), Stage.FAILED),
    ):
        login = a_login()
        login.on_handshake(FIRST, 1, T0)
        assert isinstance(login.on_token(b"later", T0), Later)
        assert verdicts(login) == [ILLEGAL] * 5
        assert login.is_overdue(at(DEADLINE_MS))
        login.on_outcome(outcome, T0)
        assert login.stage is stage


@pytest.mark.parametrize(
    ("configured_ms", "proof_ms", "lifetime_ms"),
    [(0, 0, 0), (0, 500, 500), (500, 0, 500), (500, 900, 500), (900, 500, 500)],
)
def test_a_session_ends_with_its_proof_or_its_lifetime(
    configured_ms: int, proof_ms: int, lifetime_ms: int
) -> None:
    login = a_login(configured_ms)
    login.on_handshake(FIRST, 1, T0)
    answer = login.on_outcome(Step(b"", "alice", proof_ms), T0)
    assert answer.lifetime_ms == lifetime_ms
    assert login.judge(ApiKey.METADATA, at(500)) is (EXPIRED if lifetime_ms else SERVE)
