"""Rules that several services share: shards, leases, the metadata feed, timers. Pure."""
