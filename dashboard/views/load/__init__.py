"""Load: latency under traffic, and how much traffic a configuration takes."""
