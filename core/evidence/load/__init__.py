"""Load tests: arrivals, queues, bounds and results. Pure: no clock, no process, no store, no numpy."""
