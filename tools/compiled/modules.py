"""Modules that are compiled: cores, storage, and the shells that every request passes."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

COMPILED: Final = (
    "tidemark/codec/*.py",
    "tidemark/kafka/*.py",
    "tidemark/model/*.py",
    "tidemark/storage/*.py",
    "tidemark/protocol/acl_authorizer.py",
    *(
        f"tidemark/runtime/{name}.py"
        for name in (
            *("append_call", "channel_pool", "clock", "inbox", "log_ends", "os_disk"),
            *("send_queue", "share_state_client", "share_state_wire", "transport_queue"),
            "worker_pool",
        )
    ),
    "broker/core/*.py",
    "broker/core/share/*.py",
    "broker/storage/*.py",
    "broker/shell/audited_authorizer.py",
    *(
        f"broker/shell/{room}/*.py"
        for room in ("listener", "partitions", "replication", "share", "transactions")
    ),
    *(
        f"broker/shell/kafka/{name}.py"
        for name in (
            *("fetch", "fetching", "leader_hints", "list_offsets", "near_fetch", "produce"),
            *("produce_parts", "replica_fetch", "share_acknowledge", "share_calls"),
            *("share_fetch", "share_parts", "write_txn_markers"),
        )
    ),
    "txn_coordinator/core/*.py",
    "share_coordinator/core/*.py",
)
"""Patterns below a tree of the packages."""

INTERPRETED: Final = {
    "broker/shell/listener/bearer_exchange.py": "default values of attributes",
    "broker/shell/listener/listener.py": "uvloop's list of sockets is declared as a tuple",
    "broker/shell/listener/scram_exchange.py": "default values of attributes",
    "broker/shell/partitions/traffic.py": "an async generator",
    "broker/shell/share/letter_copier.py": "a dataclass whose field is used in its own body",
    "broker/storage/compaction.py": "its frozen dataclasses go to another process",
    "broker/storage/scrubber.py": "a name is both a variable and that of an exception",
    "share_coordinator/core/pending_batches.py": "mypyc checks it as two types at once",
    "share_coordinator/core/requests.py": "dataclasses that inherit fields with defaults",
    "tidemark/codec/compression_stream.py": "arguments are deleted",
    "tidemark/kafka/schemas.py": "a NamedTuple with a field of type object",
    "tidemark/kafka/struct_codec.py": "a condition in the body of a class",
    "tidemark/model/errors.py": "interpreted classes inherit from its exceptions",
    "tidemark/model/ids.py": "a class in a condition",
    "tidemark/storage/batch_walk.py": "a NamedTuple with a field of type memoryview",
    "txn_coordinator/core/multi_writer_rules.py": "mypyc infers the type None",
}
"""Modules within the patterns that mypyc 2 cannot compile as they are, and why."""


def sources(tree: Path) -> Iterator[Path]:
    """Yield the files to compile. An empty file is a package's, and has nothing to compile."""
    skipped = {tree / name for name in INTERPRETED}
    found = {path for pattern in COMPILED for path in tree.glob(pattern)}
    for path in sorted(found - skipped):
        if path.stat().st_size:
            yield path
