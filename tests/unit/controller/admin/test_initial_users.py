from pathlib import Path

import pytest
from controller.admin.initial_users import read_users
from tidemark.model.scram import password_fits
from tidemark.runtime.service import ServiceError


def written(directory: Path, text: str) -> Path:
    file = directory / "users"
    file.write_text(text)
    return file


@pytest.mark.feature("SE02")
def test_each_line_is_a_user_with_a_credential_for_each_mechanism(tmp_path: Path) -> None:
    made = read_users(written(tmp_path, "# first\n\nroot:a:b c\nalice:pencil\n"))
    credentials = {
        user: tuple(one.credential for one in made if one.user == user and one.credential)
        for user in ("root", "alice")
    }
    assert [len(each) for each in credentials.values()] == [2, 2]
    assert password_fits(credentials, b"", "root", "a:b c")
    assert password_fits(credentials, b"", "alice", "pencil")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "has 0 users"),
        ("root", "line 1 of .* is not user:password"),
        ("a:b\nroot:", "line 2 of .* is not user:password"),
        (":secret", "Username must not be empty"),
        ("a:secret\na:secret", "line 2 of .* has the user 'a' again"),
        ("".join(f"u{number}:secret\n" for number in range(101)), "has 101 users"),
    ],
)
def test_a_file_that_cannot_be_used_is_refused_without_its_passwords(
    tmp_path: Path, text: str, why: str
) -> None:
    with pytest.raises(ServiceError, match=f"initial.users.file: .*{why}") as refused:
        read_users(written(tmp_path, text))
    assert "secret" not in str(refused.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ServiceError, match="cannot read"):
        read_users(tmp_path / "missing")
