"""What proves the promises to somebody who doubts them; `docs/proof.rst` says what proves what."""
