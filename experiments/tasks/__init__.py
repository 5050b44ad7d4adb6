"""One file per task: what is trained, by which protocol, and what is measured."""
