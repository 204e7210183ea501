"""Variants: steps that change a model, and its family."""
