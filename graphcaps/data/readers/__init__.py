"""From a data set's files to tensors; every file is checked before it is decoded."""
