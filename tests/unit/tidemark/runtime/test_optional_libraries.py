"""Libraries for certificates and signed tokens, a tenth of a service's memory, are loaded by what
needs them and not by the start of a service.
"""

import subprocess
import sys

import pytest

SERVICES = ("broker", "controller", "txn_coordinator", "share_coordinator")
LIBRARIES = {"cryptography", "joserfc"}


@pytest.mark.parametrize("service", SERVICES)
def test_a_service_starts_without_them(service: str) -> None:
    look = f"import sys, {service}.process; print(*{LIBRARIES} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True)
    assert done.stdout.split() == []
