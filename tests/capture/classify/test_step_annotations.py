"""Step annotations of serving engines, each as its engine writes it, against figures read by hand."""

import pytest

from capture.classify.step_annotations import (
    AttentionSums,
    CaptureAnnotation,
    StepAnnotation,
    parse_capture_annotation,
    parse_step_annotation,
)

WRITTEN = {
    "execute_6147_context_2(sq6144sk7144sqsq20971520sqsk23019520)_generation_3(sq3sk6144sqsq3sqsk6144)":
        StepAnnotation("mixed", 5, None, 6147, 13288, AttentionSums(2, 6144, 7144, 20971520, 23019520),
                       AttentionSums(3, 3, 6144, 3, 6144)),
    "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk32785sqsq32sqsk32785)":
        StepAnnotation("decode", 32, None, 32, 32785, None, AttentionSums(32, 32, 32785, 32, 32785)),
    "execute_context_2(6144)_generation_3(3)":
        StepAnnotation("mixed", 5, None, 6147, None, AttentionSums(2, 6144), AttentionSums(3, 3)),
    "execute_context_1(512)_generation_0(0)":
        StepAnnotation("prefill", 1, None, 512, None, AttentionSums(1, 512)),
    "step[DECODE bs=64]": StepAnnotation("decode", 64, None, 64, None, None, AttentionSums(64)),
    "step[EXTEND bs=2 toks=14721]": StepAnnotation("prefill", 2, None, 14721, None, AttentionSums(2, 14721)),
    "step[MIXED bs=2]": StepAnnotation("mixed", 2),
    "step[VERIFY bs=4]": StepAnnotation("verify", 4),  # sglang/srt/utils/profile_utils.py writes these four
    "step[DRAFT bs=4]": StepAnnotation("draft", 4),
    "step[SPLIT_PREFILL bs=1]": StepAnnotation("prefill", 1, prefill=AttentionSums(1)),
    "step[IDLE bs=0]": StepAnnotation(batch=0),
    "step[DECODE bs=64 g_sq=128 g_sqsq=256 g_sqsk=262144 g_sk=131072]":  # two tokens a request: speculation
        StepAnnotation("decode", 64, None, 128, 131072, None, AttentionSums(64, 128, 131072, 256, 262144)),
    "step[MIXED bs=2 c=1 g=1 c_sq=5 c_sk=8 c_sqsq=25 c_sqsk=40 g_sq=1 g_sk=9 g_sqsq=1 g_sqsk=9]":
        StepAnnotation("mixed", 2, None, 6, 17, AttentionSums(1, 5, 8, 25, 40), AttentionSums(1, 1, 9, 1, 9)),
    "prefill[bs=2 tok=14721 ctx=[7803, 6918]]":
        StepAnnotation("prefill", 2, None, 14721, 14721, AttentionSums(2, 14721, 14721)),
    "decode[bs=117/128 tok=117 d=117]":
        StepAnnotation("decode", 117, 128, 117, None, None, AttentionSums(117, 117)),
    "decode[bs=4/8 tok=8 d=4 sqsq=16 sqsk=400 sk=200 spec=1]":
        StepAnnotation("decode", 4, 8, 8, 200, None, AttentionSums(4, 8, 200, 16, 400)),
    "execute_diffusion_1_1024x1024": StepAnnotation(batch=1),
    "ProfilerStep#7": StepAnnotation(number=7),
    "step 7": StepAnnotation(number=7),
    "decode_step_12": StepAnnotation(number=12),
}  # fmt: skip


@pytest.mark.parametrize("text", WRITTEN)
def test_each_grammar_is_read(text: str) -> None:
    assert parse_step_annotation(text) == WRITTEN[text]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "nccl:all_reduce",
        "## Call CompiledFxGraph f4ii27ddivzklxr54hd45chngp247rp2ytmjxpq3f55wet4szuh7 ##",
        "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk32785sqsq32)",
        "step[DECODE bs=64",
        "step[SLEEP bs=64]",
        "steps",
        "ProfilerStep#" + "9" * 30,
        "decode[" + "[" * 5000,
        "x" * 100_000 + "step 7",
    ],
)
def test_what_is_no_annotation_of_a_step_is_none(text: str) -> None:
    assert parse_step_annotation(text) is None


def test_the_more_detailed_of_two_annotations_says_more() -> None:
    detailed, native = (
        parse_step_annotation(
            "execute_32_context_0(sq0sk0sqsq0sqsk0)_generation_32(sq32sk32785sqsq32sqsk32785)"
        ),
        parse_step_annotation("step[DECODE bs=32]"),
    )
    assert detailed and native and detailed.detail and native.detail and detailed.detail > native.detail


@pytest.mark.parametrize("text", ["execute_context_0(0)_generation_0(0)", "step[IDLE bs=0]"])
def test_a_step_without_requests_has_no_detail(text: str) -> None:
    step = parse_step_annotation(text)
    assert step is not None and step.detail is None


def test_captures_say_their_batch_and_mode() -> None:
    assert parse_capture_annotation("capture_128_decode") == CaptureAnnotation(128, "decode")
    assert parse_capture_annotation("capture_8192_PIECEWISE") == CaptureAnnotation(8192, "piecewise")
    assert parse_capture_annotation("capture_now") is None
