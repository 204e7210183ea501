"""Curves: one setting over many values."""
