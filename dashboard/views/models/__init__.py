"""Models: the library, uploads and exports."""
