"""Sentences that several formats share."""
