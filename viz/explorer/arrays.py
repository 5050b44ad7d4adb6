"""Encode arrays in the JSON of a page."""

import base64

import numpy as np


def packed(values: np.ndarray, kind: str = "") -> dict:
    """Encode an array as {"type", "shape", "data"}, where data is base64 of little-endian numbers.

    Args:
        values: an array of any shape.
        kind: type to convert to, such as float16; "" keeps the array's own.

    >>> packed(np.array([1, 258]), "uint16")
    {'type': 'uint16', 'shape': [2], 'data': 'AQACAQ=='}
    """
    values = values.astype(kind or values.dtype)
    numbers = values.astype(values.dtype.newbyteorder("<"))
    return {
        "type": values.dtype.name,
        "shape": list(values.shape),
        "data": base64.b64encode(numbers.tobytes()).decode(),
    }
