"""Explain: two results, and the causes of their difference."""
