import subprocess
import sys

import pytest
import tidemark.client


@pytest.mark.parametrize("name", tidemark.client.__all__)
def test_every_public_name_can_be_imported(name: str) -> None:
    assert getattr(tidemark.client, name) is not None


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="Nothing"):
        _ = tidemark.client.Nothing


def test_the_package_imports_a_class_at_its_first_use() -> None:
    program = (
        "import sys, tidemark.client as client; name = 'tidemark.client.admin.admin'\n"
        "print(name in sys.modules, client.Admin.__name__, name in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)
    assert done.stdout.split() == [b"False", b"Admin", b"True"]
