"""Entry point of the process of the broker."""

from tidemark.runtime.loading import without_collections


def main() -> None:
    """Entry point of ``tidemark-broker`` and ``python -m broker``."""
    with without_collections():
        from broker.process import main as run
    run()


if __name__ == "__main__":
    main()
