"""Parts for other frameworks, each imported by nothing else of the package."""
