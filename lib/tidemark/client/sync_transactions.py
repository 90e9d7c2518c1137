"""Earlier home of the synchronous transaction classes, kept for programs that import them here."""

from tidemark.client.sync.transactions import (
    TransactionalProducer,
    TransactionHandle,
    Transactions,
    Writer,
)

__all__ = ["TransactionHandle", "TransactionalProducer", "Transactions", "Writer"]
