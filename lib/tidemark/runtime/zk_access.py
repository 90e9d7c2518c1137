"""ZkAccess: how a process meets ZooKeeper: TLS, its user, and the ACLs of what it creates.

A process hands it to its supervisor, so it has paths and never a secret. Imports nothing large.
"""

from typing import Final, NamedTuple

from tidemark.runtime.zk_calls import ZkAccessError

DIGEST_SCHEME: Final = "digest"


class ZkAccess(NamedTuple):
    """Access to an ensemble. All paths are those of PEM files, '' for none."""

    has_tls: bool = False
    ca: str = ""
    """Authorities of the servers' certificates; '' for those of the system."""
    certificate: str = ""
    key: str = ""
    """Private key; '' if it is in ``certificate``, too."""
    digest_file: str = ""
    """File with a line ``user:password``."""
    sets_acls: bool = False
    """True if only the user of ``digest_file`` may read and change what is created."""

    @property
    def key_file(self) -> str:
        """File with the private key; '' without a certificate."""
        return self.key or self.certificate

    def credential(self) -> str:
        """Return ``user:password``; '' without a user. Raises ZkAccessError, without the secret."""
        if not self.digest_file:
            return ""
        try:
            with open(self.digest_file, encoding="utf-8") as file:
                lines = file.read().splitlines()
        except OSError as error:
            raise ZkAccessError(
                f"zookeeper.digest.file: cannot read {self.digest_file}: {error.strerror}"
            ) from None
        except UnicodeDecodeError:
            raise ZkAccessError(f"zookeeper.digest.file: {self.digest_file} is no text") from None
        words = [line for line in lines if line]
        user, colon, password = words[0].partition(":") if len(words) == 1 else ("", "", "")
        if not (user and colon and password):
            raise ZkAccessError(
                f"zookeeper.digest.file: {self.digest_file} must have one line, user:password"
            )
        return words[0]


OPEN: Final = ZkAccess()
"""Access without TLS and without a user."""
