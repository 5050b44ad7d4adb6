"""Capsule layers for images, the decoder, and routing layers for the nodes of a graph."""

from ..beliefs.layer import BeliefConv
from .conv_caps import ConvCaps
from .decoder import Decoder
from .dense_caps import CapsuleLayer, SharedCaps
from .graph_conv import CapsuleConv, CapsuleReadout
from .matrix_caps import MatrixClassCaps, MatrixConvCaps, MatrixPrimaryCaps
from .primary import DepthwisePrimaryCaps, PrimaryCaps, receptive_fields
from .routed import Poses

__all__ = ["CapsuleLayer", "ConvCaps", "Decoder", "DepthwisePrimaryCaps", "PrimaryCaps", "SharedCaps"]
__all__ += ["MatrixClassCaps", "MatrixConvCaps", "MatrixPrimaryCaps", "Poses", "receptive_fields"]
__all__ += ["BeliefConv", "CapsuleConv", "CapsuleReadout"]
