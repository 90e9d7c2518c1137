"""The simulator: the broker's real cores and storage under one clock, one queue and one seed."""
