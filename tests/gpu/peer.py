# SPDX-License-Identifier: Apache-2.0
"""What the scripts that run HuggingFace transformers beside strata share."""


def delta_rule():
    """Name of what computes the delta rule. The guard against its backward on Hopper is for key heads of 64 columns."""
    try:
        import fla
        import fla.ops.common.chunk_o as chunk

        chunk.TRITON_ABOVE_3_7_1 = True
        return f"flash-linear-attention {fla.__version__}"
    except ImportError:
        return "the library's reference"
