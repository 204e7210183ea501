"""Machine: hardware, limits, runtimes, background load and job queue."""
