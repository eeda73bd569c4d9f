"""Writes a results file as tables for people; never measures."""
