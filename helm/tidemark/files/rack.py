"""Write the zone of this pod's node to a file, as the rack of the broker."""

import json
import os
import ssl
import sys
import urllib.request

ACCOUNT = "/var/run/secrets/kubernetes.io/serviceaccount"
ZONE = "topology.kubernetes.io/zone"

with open(f"{ACCOUNT}/token", encoding="utf-8") as file:
    token = file.read()
server = f"https://{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
node = os.environ["NODE_NAME"]
request = urllib.request.Request(
    f"{server}/api/v1/nodes/{node}", headers={"Authorization": f"Bearer {token}"}
)
trusted = ssl.create_default_context(cafile=f"{ACCOUNT}/ca.crt")
with urllib.request.urlopen(request, context=trusted, timeout=30) as answer:
    zone = json.load(answer)["metadata"]["labels"].get(ZONE)
if not zone:
    sys.exit(f"node {node} has no label {ZONE}: set it, or switch rackAwareness off")
with open("/run/tidemark/rack", "w", encoding="utf-8") as file:
    file.write(zone)
