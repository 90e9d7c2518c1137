"""The password of a session, as a ZooKeeper server of release 3.9 gave it."""

from chaos.zk_password import PASSWORD_BYTES, session_password


def test_a_password_that_a_server_gave() -> None:
    given = "b4bc9a5f3142f194b2005e576280603d"
    assert session_password(0x10001C2389A0000).hex() == given


def test_every_session_has_its_own() -> None:
    first, second = session_password(1), session_password(2)
    assert len(first) == PASSWORD_BYTES
    assert first != second
