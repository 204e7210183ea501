"""Models from models: exports and transforms."""
