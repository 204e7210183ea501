"""Compare: who races, and the race."""
