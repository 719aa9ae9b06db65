"""What the fast tests miss: every script with one condition negated, or one write left out.

``python -m proof.mutants`` tries each of these mutants, and prints how many the tests killed.
"""
