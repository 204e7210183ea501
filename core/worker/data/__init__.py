"""Labelled datasets, and the scores of a model on them."""
