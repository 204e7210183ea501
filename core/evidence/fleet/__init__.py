"""Fleets: what hosts were asked and what they answered. Pure: no network, no process, no store."""
