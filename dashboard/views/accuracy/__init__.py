"""Accuracy: a model over labelled data."""
