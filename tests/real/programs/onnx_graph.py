"""A decoder as an ONNX graph, run by onnxruntime: python onnx_graph.py FOLDER RUNS [THREADS [LEVEL [MODE]]].

Its profiler writes FOLDER/profile.json; LEVEL of optimisation and MODE of execution are named as there.
Print the number of nodes that the graph was made of, and the seconds of the runs by the program's own clock.
"""

import json
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

WIDTH, LAYERS, TOKENS = 128, 3, 32
folder, runs = Path(sys.argv[1]), int(sys.argv[2])
threads, level, mode = (*sys.argv[3:], *("1", "ORT_DISABLE_ALL", "ORT_SEQUENTIAL")[len(sys.argv) - 3 :])
numbers, weights, nodes = np.random.default_rng(0), [], []


def add_weight(name, *sizes):
    values = (numbers.standard_normal(sizes) * 0.02).astype("f")
    weights.append(numpy_helper.from_array(values, name))
    return name


def add_node(operator, inputs, out, name, **options):
    nodes.append(helper.make_node(operator, inputs, [out], name=name, **options))
    return out


x = "x"
for layer in range(LAYERS):
    path, size = f"/model/layers.{layer}", (WIDTH, WIDTH)
    norm = [x, add_weight(f"scale{layer}", WIDTH), add_weight(f"shift{layer}", WIDTH)]
    hidden = add_node("LayerNormalization", norm, f"n{layer}", f"{path}/input_layernorm/LayerNormalization")
    q, k, v = (
        add_node("MatMul", [hidden, add_weight(f"w{p}{layer}", *size)], f"{p}{layer}",
                 f"{path}/self_attn/{p}_proj/MatMul")
        for p in "qkv"
    )  # fmt: skip
    k = add_node("Transpose", [k], f"t{layer}", f"{path}/self_attn/Transpose", perm=[1, 0])
    scores = add_node("MatMul", [q, k], f"s{layer}", f"{path}/self_attn/MatMul")
    scores = add_node("Softmax", [scores], f"p{layer}", f"{path}/self_attn/Softmax")
    mixed = add_node("MatMul", [scores, v], f"m{layer}", f"{path}/self_attn/MatMul_1")
    out = [mixed, add_weight(f"wo{layer}", *size), add_weight(f"bo{layer}", WIDTH)]
    mixed = add_node("Gemm", out, f"o{layer}", f"{path}/self_attn/o_proj/Gemm", transB=1)
    x = add_node("Add", [x, mixed], f"x{layer}", f"{path}/Add")
add_node("MatMul", [x, add_weight("head", WIDTH, 500)], "logits", "/lm_head/MatMul")
graph = helper.make_graph(
    nodes, "g", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["s", WIDTH])],
    [helper.make_tensor_value_info("logits", TensorProto.FLOAT, None)], weights,
)  # fmt: skip
model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)])
model.ir_version = 9
onnx.save(model, folder / "model.onnx")

options = onnxruntime.SessionOptions()
options.enable_profiling, options.intra_op_num_threads = True, int(threads)
options.graph_optimization_level = getattr(onnxruntime.GraphOptimizationLevel, level)
options.execution_mode, options.inter_op_num_threads = getattr(onnxruntime.ExecutionMode, mode), 2
options.profile_file_prefix = str(folder / "profile")
session = onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
times = []
for _ in range(runs):
    start = time.perf_counter()
    session.run(None, {"x": numbers.standard_normal((TOKENS, WIDTH)).astype("f")})
    times.append(time.perf_counter() - start)
Path(session.end_profiling()).replace(folder / "profile.json")
print(json.dumps({"nodes": len(nodes), "times": times}))
