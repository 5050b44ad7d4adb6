"""Planetoid's files as arrays: Python 2 pickles, read so that they can make plain data and nothing else.

A pickle names functions and has them called. Here a name that isn't in a short table of harmless ones is refused, and
SciPy's matrices become a bare object whose arrays are then checked.

``x``, ``tx`` and ``allx`` are the words of the training, test, and all other papers (CSR, 0 or 1), ``y``, ``ty`` and
``ally`` their classes (one-hot), ``graph`` is {paper: papers it cites or is cited by}, and row k of ``tx`` is the paper
on line k of ``test.index``.
"""

from __future__ import annotations

import pickle
from collections import defaultdict
from pathlib import Path

import numpy as np

from ...errors import InputError, expect

FILES = ("x", "y", "tx", "ty", "allx", "ally", "graph", "test.index")


class _Rows:
    """What stands in a pickled CSR matrix: ``indptr``, ``indices``, ``data`` and ``_shape``."""


def _latin1(text: str, encoding: str) -> bytes:
    """How Python 3 writes bytes into old pickles; no other codec is looked up."""
    if encoding != "latin1":
        raise ValueError(f"codec {encoding}")
    return text.encode("latin1")


_HARMLESS = {
    **{(f"numpy.{core}.multiarray", "_reconstruct"): np.empty(0).__reduce__()[0] for core in ("core", "_core")},
    ("numpy", "ndarray"): np.ndarray,
    ("numpy", "dtype"): np.dtype,
    **{(f"scipy.sparse.{module}", "csr_matrix"): _Rows for module in ("csr", "_csr")},
    ("collections", "defaultdict"): defaultdict,
    **{
        (module, name): kind
        for module in ("__builtin__", "builtins")
        for name, kind in (("list", list), ("object", object))
    },
    **{(module, "_reconstructor"): object().__reduce__()[0] for module in ("copy_reg", "copyreg")},
    ("_codecs", "encode"): _latin1,
}


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str):
        if (module, name) not in _HARMLESS:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no such file needs")
        return _HARMLESS[module, name]


def read_planetoid(folder: Path, name: str, num_val: int, num_test: int) -> dict[str, np.ndarray]:
    """Read ``ind.<name>.*`` of a data set whose test papers are the last ones, without gaps (Cora).

    Returns:
        int64 arrays ``feature_indptr`` (N + 1,), ``feature_indices``, ``labels`` (N,), ``edges`` (M, 2) with each pair
        once and without self-loops, and the public split: ``train``, the next ``num_val`` nodes ``val``, and ``test``.

    Raises:
        InputError: a file is unreadable, no pickle of plain data, or doesn't fit the others; it names the file.
    """
    paths = {part: folder / f"ind.{name}.{part}" for part in FILES}
    x, tx, allx = (_rows(paths[part]) for part in ("x", "tx", "allx"))
    y, ty, ally = (_classes(paths[part]) for part in ("y", "ty", "ally"))
    for part, rows, classes in (("y", x, y), ("ty", tx, ty), ("ally", allx, ally)):
        expect(len(classes) == len(rows), str(paths[part]), f"{len(rows)} rows, one per paper", len(classes))
    first = len(y) <= len(ally) and (ally[: len(y)] == y).all() and all(map(np.array_equal, x, allx))
    expect(first, str(paths["x"]), "the first rows of allx and ally in x and y", "others")
    order = _order(paths["test.index"], len(allx), num_test)
    expect(len(tx) == num_test, str(paths["tx"]), f"{num_test} rows", len(tx))
    expect(len(y) + num_val <= len(allx), str(paths["allx"]), f"at least {len(y) + num_val} rows", len(allx))

    of_node = np.argsort(order)
    words = [*allx, *(tx[k] for k in of_node)]
    return {
        "feature_indptr": np.cumsum([0, *map(len, words)]),
        "feature_indices": np.concatenate(words),
        "labels": np.concatenate([ally, ty[of_node]]),
        "edges": _edges(paths["graph"], len(words)),
        "train": np.arange(len(y)),
        "val": np.arange(len(y), len(y) + num_val),
        "test": np.sort(order),
    }


def _unpickle(path: Path):
    try:
        with path.open("rb") as file:
            return _PlainUnpickler(file, encoding="latin1").load()
    except OSError as error:
        raise InputError(f"{path}: expected a readable file, got: {error.strerror or error}") from error
    except Exception as error:  # bytes that are no pickle can raise anything
        raise InputError(f"{path}: expected a pickle of plain data, got: {type(error).__name__}: {error}") from error


def _rows(path: Path) -> list[np.ndarray]:
    """The words of each paper, ascending."""
    found = vars(_unpickle_as(path, _Rows, "a SciPy CSR matrix"))
    arrays = [found.get(name) for name in ("indptr", "indices", "data")]
    plain = all(isinstance(array, np.ndarray) and array.ndim == 1 and array.dtype.kind in "iuf" for array in arrays)
    expect(plain, str(path), "a CSR matrix with indptr, indices and data", f"one with {', '.join(found) or 'nothing'}")
    starts, words, values = arrays
    whole = starts.dtype.kind in "iu" and words.dtype.kind in "iu" and len(starts) > 0
    whole = whole and starts[0] == 0 and starts[-1] == len(words) == len(values) and (np.diff(starts) >= 0).all()
    expect(whole, str(path), f"indptr from 0 to {len(words)}, a value for each index", starts)
    expect((values == 1).all(), str(path), "words of value 1", values[values != 1][:1])
    return [np.sort(part) for part in np.split(words, starts[1:-1])] if len(starts) > 1 else []


def _classes(path: Path) -> np.ndarray:
    found = _unpickle_as(path, np.ndarray, "an array")
    hot = found.ndim == 2 and found.dtype.kind in "iuf" and ((found == 0) | (found == 1)).all()
    expect(hot and (found.sum(axis=1) == 1).all(), str(path), "one-hot rows", f"{found.dtype} {found.shape}")
    return found.argmax(axis=1)


def _edges(path: Path, nodes: int) -> np.ndarray:
    """Each linked pair once, the lower number first; a paper that cites itself is left out."""
    found = _unpickle_as(path, dict, "a dict of lists")
    plain = all(isinstance(value, list) and all(type(end) is int for end in value) for value in found.values())
    expect(plain and all(type(node) is int for node in found), str(path), "a dict of lists of integers", "another")
    expect(found.keys() == set(range(nodes)), str(path), f"papers 0 to {nodes - 1}", f"{len(found)} other ones")
    pairs = [(min(i, j), max(i, j)) for i, ends in found.items() for j in ends if i != j]
    low, high = (min(min(pairs)), max(map(max, pairs))) if pairs else (0, 0)
    expect(low >= 0 and high < nodes, str(path), f"links to papers 0 to {nodes - 1}", f"{low} to {high}")
    return np.array(sorted(set(pairs)), np.int64).reshape(-1, 2)


def _order(path: Path, start: int, count: int) -> np.ndarray:
    """The paper of each row of ``tx``."""
    try:
        order = [int(line) for line in path.read_text(encoding="ascii").split()]
    except OSError as error:
        raise InputError(f"{path}: expected a readable file, got: {error.strerror or error}") from error
    except ValueError as error:  # not ASCII, or not a number
        raise InputError(f"{path}: expected one node number per line, got: {error}") from error
    said = f"{count} numbers, {start} to {start + count - 1} in any order"
    expect(sorted(order) == list(range(start, start + count)), str(path), said, f"{len(order)} numbers or other ones")
    return np.array(order, np.int64)


def _unpickle_as(path: Path, kind: type, said: str):
    found = _unpickle(path)
    expect(isinstance(found, kind), str(path), said, type(found).__name__)
    return found
