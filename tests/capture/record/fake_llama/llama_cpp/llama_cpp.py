"""As llama_cpp/llama_cpp.py: structures, and functions of the library with their types."""

import ctypes
import os

_lib = ctypes.CDLL(os.environ["FAKE_LLAMA"])
ggml_backend_sched_eval_callback = ctypes.CFUNCTYPE(
    ctypes.c_bool, ctypes.c_void_p, ctypes.c_bool, ctypes.c_void_p
)

GGML_TYPE_F16, GGML_TYPE_Q8_0 = 1, 8


class llama_context_params(ctypes.Structure):  # noqa: N801
    _fields_ = (
        ("n_ctx", ctypes.c_uint32),
        ("cb_eval", ggml_backend_sched_eval_callback),
        ("cb_eval_user_data", ctypes.c_void_p),
        ("n_threads", ctypes.c_int32),
        ("flash_attn_type", ctypes.c_int),
        ("type_k", ctypes.c_int),
        ("type_v", ctypes.c_int),
    )


class llama_batch(ctypes.Structure):  # noqa: N801
    _fields_ = (
        ("n_tokens", ctypes.c_int32),
        ("token", ctypes.POINTER(ctypes.c_int32)),
        ("embd", ctypes.POINTER(ctypes.c_float)),
        ("pos", ctypes.POINTER(ctypes.c_int32)),
        ("n_seq_id", ctypes.POINTER(ctypes.c_int32)),
        ("seq_id", ctypes.POINTER(ctypes.POINTER(ctypes.c_int32))),
        ("logits", ctypes.POINTER(ctypes.c_int8)),
    )


def _bound(name, arguments, result):
    function = getattr(_lib, name)
    function.argtypes, function.restype = arguments, result
    return function


llama_init_from_model = _bound(
    "llama_init_from_model", [ctypes.c_void_p, llama_context_params], ctypes.c_void_p
)
llama_decode = _bound("llama_decode", [ctypes.c_void_p, llama_batch], ctypes.c_int32)
llama_model_desc = _bound(
    "llama_model_desc", [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_size_t], ctypes.c_int32
)
llama_supports_gpu_offload = _bound("llama_supports_gpu_offload", [], ctypes.c_bool)
fake_sum = _bound("fake_sum", [ctypes.c_void_p], ctypes.c_long)


def llama_batch_of(rows):
    """A batch of (position, sequence) pairs."""
    count = len(rows)
    ids = [(ctypes.c_int32 * 1)(sequence) for _, sequence in rows]
    return llama_batch(
        count,
        (ctypes.c_int32 * count)(*range(count)),
        None,
        (ctypes.c_int32 * count)(*(position for position, _ in rows)),
        (ctypes.c_int32 * count)(*[1] * count),
        (ctypes.POINTER(ctypes.c_int32) * count)(
            *(ctypes.cast(i, ctypes.POINTER(ctypes.c_int32)) for i in ids)
        ),
        None,
    )
