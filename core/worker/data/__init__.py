"""Labelled data, and scores on it."""
