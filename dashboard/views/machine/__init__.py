"""Machine: what it is, who else uses it, its queue."""
