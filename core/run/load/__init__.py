"""Load tests."""
