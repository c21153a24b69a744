"""Decode engines worth watching, in PyTorch and Triton."""
