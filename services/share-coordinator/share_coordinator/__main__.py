"""Entry point of the process of one share-coordinator replica."""

from tidemark.runtime.loading import without_collections


def main() -> None:
    """Entry point of ``tidemark-share-coordinator`` and ``python -m share_coordinator``."""
    with without_collections():
        from share_coordinator.process import main as run
    run()


if __name__ == "__main__":
    main()
