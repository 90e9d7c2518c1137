"""Entry point of the process of one txn-coordinator replica."""

from tidemark.runtime.loading import without_collections


def main() -> None:
    """Entry point of ``tidemark-txn-coordinator`` and ``python -m txn_coordinator``."""
    with without_collections():
        from txn_coordinator.process import main as run
    run()


if __name__ == "__main__":
    main()
