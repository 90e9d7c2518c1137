"""Configurations of clients that log in at a release over TLS, ready to use."""

from typing import Final

MECHANISM: Final = "SCRAM-SHA-512"
_MODULE: Final = "org.apache.kafka.common.security.scram.ScramLoginModule"


def client_files(bootstrap: str, user: str, password: str, authority: str) -> dict[str, str]:
    """Return files by their names: for Java clients and tools (``client.properties``, which is
    whole), for librdkafka (``client.conf``, which names ``ca.crt``), and the authority itself.
    """
    common = {"bootstrap.servers": bootstrap, "security.protocol": "SASL_SSL"}
    java = {
        **common,
        "sasl.mechanism": MECHANISM,
        "sasl.jaas.config": f'{_MODULE} required username="{user}" password="{password}";',
        "ssl.truststore.type": "PEM",
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
    return {
        "client.properties": _lines(java),
        "client.conf": _lines(librdkafka),
        "ca.crt": authority,
    }


def _lines(values: dict[str, str]) -> str:
    return "".join(f"{name}={value}\n" for name, value in values.items())
