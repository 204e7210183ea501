"""Statistics from measurements to verdicts: pure functions and types, no process and no store."""
