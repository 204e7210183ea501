"""Tune: settings, one run, its duel."""
