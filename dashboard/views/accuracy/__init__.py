"""Accuracy: evaluate models on labelled data."""
