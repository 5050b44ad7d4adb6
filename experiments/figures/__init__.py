"""Pictures of results, drawn from plain numbers in the style of ``graphcaps.viz``."""
