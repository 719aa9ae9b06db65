"""What the fast tests miss: mutants of the scripts, and of the order in which Python asks for them.

``python -m proof.mutants`` tries every script with one condition negated, or one write left out;
with ``--python`` functions of the package with a statement left out, too early or too late.  It
prints how many the tests killed.
"""
