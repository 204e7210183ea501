"""Runtimes beside ORTune's own: `creation` adds them, `checking` checks them, `removal` removes them."""
