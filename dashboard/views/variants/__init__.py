"""Variants: transform a model, and its family of variants."""
