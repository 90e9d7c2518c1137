"""Entry point of the process of one controller replica."""

from tidemark.runtime.loading import without_collections


def main() -> None:
    """Entry point of ``tidemark-controller`` and ``python -m controller``."""
    with without_collections():
        from controller.process import main as run
    run()


if __name__ == "__main__":
    main()
