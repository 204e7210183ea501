"""Tune: settings on one side, the comparison with the baseline on the other."""
