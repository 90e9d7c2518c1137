"""Configurations of clients that log in at a release over TLS, ready to use."""

from typing import Final, NamedTuple

MECHANISM: Final = "SCRAM-SHA-512"
MOUNTED_AT: Final = "/etc/tidemark-client"
"""Directory at which Spark jobs mount the files, on driver and executors."""
_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


class Addresses(NamedTuple):
    """Addresses for clients, HOST:PORT,..."""

    kafka: str
    grpc: str
    """Those of the listener GRPC; '' without it."""


def client_files(at: Addresses, user: str, password: str, authority: str) -> dict[str, str]:
    """Return files by their names: for Java clients and tools (``client.properties``, which is
    whole), for librdkafka (``client.conf``, which names ``ca.crt``), for Spark jobs with a listener
    GRPC (``client.spark.properties``, which names ``ca.crt`` at MOUNTED_AT), and the authority.
    """
    common = {"bootstrap.servers": at.kafka, "security.protocol": "SASL_SSL"}
    login = {
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": f'{_MODULE} required username="{user}" password="{password}";',
        "ssl.truststore.type": "PEM",
    }
    java = {
        **common,
        **login,
        # A line of properties ends with a backslash when it goes on.
        "ssl.truststore.certificates": authority.strip().replace("\n", "\\n\\\n"),
    }
    librdkafka = {
        **common,
        "sasl.mechanisms": MECHANISM,
        "sasl.username": user,
        "sasl.password": password,
        "ssl.ca.location": "ca.crt",
    }
    files = {
        "client.properties": _lines(java),
        "client.conf": _lines(librdkafka),
        "ca.crt": authority,
    }
    if at.grpc:
        spark = {
            **common,
            "bootstrap.servers": at.grpc,
            "grpc.security.protocol": "SASL_SSL",
            **login,
            "ssl.truststore.location": f"{MOUNTED_AT}/ca.crt",
        }
        files["client.spark.properties"] = _lines(spark)
    return files


def _lines(values: dict[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in values.items())
