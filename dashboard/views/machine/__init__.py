"""Machine: hardware, limits, background load and job queue."""
