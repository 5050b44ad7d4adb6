"""``graphcaps matters``: one table of where routing matters, tasks by routings, that is taken up where it was."""
