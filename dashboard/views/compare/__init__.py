"""Compare: the list of configurations, and their comparison."""
