"""The mutants of order in the package's Python: what is done too early, too late, or not at all."""

from __future__ import annotations

from proof.mutants.ordering import attempts, passes, workers
from proof.mutants.python import Mutant

__all__ = ["MUTANTS"]

MUTANTS = {
    row[0]: Mutant(row[0], path, function, *row[1:])
    for table in (attempts.TABLE, workers.TABLE, passes.TABLE)
    for path, functions in table.items()
    for function, rows in functions.items()
    for row in rows
}
