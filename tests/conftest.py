"""For every test: property tests must not fail because the machine is busy, and `make unit` draws
fewer examples of each than `make test` does.
"""

import os

from hypothesis import HealthCheck, settings

_CALM = [HealthCheck.too_slow]
settings.register_profile("full", deadline=None, suppress_health_check=_CALM, print_blob=True)
settings.register_profile("quick", settings.get_profile("full"), max_examples=20)
settings.load_profile("quick" if os.environ.get("QUICK") else "full")
