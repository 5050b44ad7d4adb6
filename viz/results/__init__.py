"""One picture per analysis, named like the analysis."""
