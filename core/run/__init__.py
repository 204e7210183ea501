"""From a spec to a stored result: plans, comparisons, searches, and the job queue."""
