"""Traces in the layout that torch prints."""

RANK_0 = "samples/chrome_trace/rank-0.Apr_03_18_51_38.1102.pt.trace.json.gz"
TORCH_LAYOUT = (
    "chrome/torch_decode.json",
    "chrome/torch_grouped_keys.json",
    "samples/chrome_trace/mi250_minitoy_train_ROCm6_2_kineto.json.gz",
    RANK_0,
    "samples/chrome_trace/rank-34.Jul_15_10_52_41.1074.pt.trace.json.gz",
    "samples/chrome_trace/triton_example.json.gz",
)
