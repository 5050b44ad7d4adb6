"""The layers of a capsule network: image to children, children to parents, parents to a picture."""

from .decoder import Decoder
from .layers import CapsuleLayer
from .primary import DepthwisePrimaryCaps, PrimaryCaps, receptive_fields

__all__ = ["CapsuleLayer", "Decoder", "DepthwisePrimaryCaps", "PrimaryCaps", "receptive_fields"]
