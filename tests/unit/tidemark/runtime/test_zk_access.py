"""The user of a process in ZooKeeper, from a file."""

from pathlib import Path

import pytest
from tidemark.runtime.zk_access import OPEN, ZkAccess
from tidemark.runtime.zk_calls import ZkAccessError
from tidemark.runtime.zk_kazoo import kazoo_options


def test_without_a_file_there_is_no_user() -> None:
    assert OPEN.credential() == ""
    assert kazoo_options(OPEN) == {}


@pytest.mark.feature("SE10")
def test_the_user_is_a_line_of_a_file(tmp_path: Path) -> None:
    file = tmp_path / "digest"
    file.write_text("tidemark:with:colons\n\n")
    assert ZkAccess(digest_file=str(file)).credential() == "tidemark:with:colons"


@pytest.mark.feature("SE10")
def test_with_acls_all_is_for_the_user_alone(tmp_path: Path) -> None:
    file = tmp_path / "digest"
    file.write_text("tidemark:pass")
    options = kazoo_options(ZkAccess(digest_file=str(file), sets_acls=True))
    (acl,) = options["default_acl"]
    assert (acl.id.scheme, acl.id.id.partition(":")[0]) == ("digest", "tidemark")
    assert acl.acl_list == ["ALL"]


@pytest.mark.feature("SE10", "SE24")
@pytest.mark.parametrize("content", ["", "tidemark", ":pa55", "tidemark:\n", "a:pa55\nb:pa55"])
def test_another_content_is_refused_and_not_shown(tmp_path: Path, content: str) -> None:
    file = tmp_path / "digest"
    file.write_text(content)
    with pytest.raises(ZkAccessError, match="must have one line, user:password") as refused:
        ZkAccess(digest_file=str(file)).credential()
    assert "pa55" not in str(refused.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(ZkAccessError, match=r"zookeeper.digest.file: cannot read .*/none: No such"):
        ZkAccess(digest_file=str(tmp_path / "none")).credential()
