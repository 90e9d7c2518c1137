"""Before a broker is stopped: wait until a controller finds no risk, and clients have left.

An eviction, for instance by kubectl drain, may come while replicas elsewhere are not in sync yet,
although every pod is ready. It is held back here, for a bounded time.

pre_stop.py URL-OF-THE-CONTROLLERS BROKER SECONDS [DIRECTORY]

With https the broker shows its certificate: DIRECTORY has tls.crt, tls.key and ca.crt.
"""

import json
import ssl
import sys
import time
import urllib.request

SILENT_S = 5
LEAVE_S = 3


def ask(path):
    """Return what the controllers answer."""
    with urllib.request.urlopen(controllers + path, context=trusted, timeout=SILENT_S) as answer:
        return json.load(answer)


controllers, broker, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
trusted = None
for directory in sys.argv[4:]:
    trusted = ssl.create_default_context(cafile=f"{directory}/ca.crt")
    trusted.load_cert_chain(f"{directory}/tls.crt", f"{directory}/tls.key")
begun = answered = time.monotonic()
while (now := time.monotonic()) - begun < seconds and now - answered < SILENT_S:
    try:
        cluster = ask("/v3/clusters")["data"][0]["cluster_id"]
        if ask(f"/v3/clusters/{cluster}/brokers/{broker}:can-restart")["can_restart"]:
            break
        answered = time.monotonic()
    except (OSError, ValueError, LookupError):
        pass
    time.sleep(0.5)
# Clients that begin now shall get another pod; the broker itself moves leaders at SIGTERM.
time.sleep(LEAVE_S)
