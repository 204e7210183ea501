"""Sweep: one or two settings over many values."""
