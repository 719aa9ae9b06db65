"""Faults of the world, drawn from a seed, while real workers work: what do they cost?"""
