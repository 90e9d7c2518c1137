"""Identity of peers, and their rights: options, key sets, passwords and certificates."""
