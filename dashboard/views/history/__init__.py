"""History: what was measured."""
