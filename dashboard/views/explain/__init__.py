"""Explain: two results, and what makes the difference."""
