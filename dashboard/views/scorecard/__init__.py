"""Scorecard: are the targets met?"""
