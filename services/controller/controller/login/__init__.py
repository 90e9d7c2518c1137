"""Identity of the callers of REST and the console."""
