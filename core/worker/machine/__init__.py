"""Facts about this machine, and the execution providers that load on it."""
