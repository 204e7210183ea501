"""Create model variants: export from a framework, and transform steps."""
