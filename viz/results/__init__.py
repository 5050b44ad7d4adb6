"""One picture for each analysis, under the analysis's name."""
