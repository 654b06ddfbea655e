"""_abi.py - runtime/ftx.h for ctypes. Written by python/abi.py: change the header, not this file."""
from ctypes import (CFUNCTYPE, POINTER, Structure, c_bool, c_char, c_double, c_float, c_int, c_int32,
                    c_int64, c_size_t, c_uint, c_uint32, c_uint64, c_void_p)
from enum import IntEnum


class Status(IntEnum):
    FTX_OK = 0
    FTX_EINVAL = 1
    FTX_EFORMAT = 2
    FTX_EIO = 3
    FTX_ENOMEM = 4
    FTX_EDEVICE = 5
    FTX_ENODEVICE = 6
    FTX_EVERSION = 7
    FTX_EFULL = 8


class DeviceKind(IntEnum):
    FTX_DEVICE_AUTO = 0
    FTX_DEVICE_CPU = 1
    FTX_DEVICE_CUDA = 2


class ModelKind(IntEnum):
    FTX_MODEL_DECODER = 0
    FTX_MODEL_ENCODER = 1
    FTX_MODEL_SEQ2SEQ = 2


class Scoring(IntEnum):
    FTX_SCORING_NONE = 0
    FTX_SCORING_SIGMOID = 1
    FTX_SCORING_SOFTMAX = 2


class Type(IntEnum):
    FTX_FP32 = 0
    FTX_FP16 = 1
    FTX_BF16 = 2


class Tokenize(IntEnum):
    FTX_TOKENIZE_SPECIAL = 1
    FTX_TOKENIZE_LITERAL = 2


class Truncate(IntEnum):
    FTX_TRUNCATE_NONE = 0
    FTX_TRUNCATE_LONGEST = 1
    FTX_TRUNCATE_FIRST = 2
    FTX_TRUNCATE_SECOND = 3
    FTX_TRUNCATE_START = 4
    FTX_TRUNCATE_END = 5


class Early(IntEnum):
    FTX_EARLY_FALSE = 0
    FTX_EARLY_TRUE = 1
    FTX_EARLY_NEVER = 2


class States(IntEnum):
    FTX_STATES_NONE = 0
    FTX_STATES_LAST = 1
    FTX_STATES_MEAN = 2
    FTX_STATES_TOKENS = 3


class Finish(IntEnum):
    FTX_RUNNING = 0
    FTX_FINISH_END = 1
    FTX_FINISH_LENGTH = 2
    FTX_FINISH_STOP = 3
    FTX_FINISH_CANCEL = 4
    FTX_FINISH_ERROR = 5
    FTX_FINISH_DEADLINE = 6
    FTX_FINISH_NAN = 7


class FtxError(Structure):
    _fields_ = [
        ("status", c_int),
        ("text", c_char * 1000),
    ]


class FtxAllocator(Structure):
    _fields_ = [
        ("alloc", CFUNCTYPE(c_void_p, c_void_p, c_size_t, c_size_t)),
        ("release", CFUNCTYPE(None, c_void_p, c_void_p, c_size_t)),
        ("user", c_void_p),
    ]


class FtxOptions(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("device", c_int),
        ("ordinal", c_int),
        ("threads", c_int),
        ("allocator", POINTER(FtxAllocator)),
        ("log", CFUNCTYPE(None, c_void_p, c_int, POINTER(c_char))),
        ("log_user", c_void_p),
        ("random_weights", c_uint64),
        ("kv_bytes", c_uint64),
        ("prefix_cache", c_size_t),
        ("overcommit", c_size_t),
        ("queue_requests", c_size_t),
        ("queue_tokens", c_size_t),
        ("step_ms", c_size_t),
        ("devices", c_int * 8),
        ("device_count", c_size_t),
        ("swap_bytes", c_uint64),
        ("inbox", c_size_t),
        ("gpu_memory", c_uint64),
        ("gpu_layers", c_int64),
    ]


class FtxModelInfo(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("name", POINTER(c_char)),
        ("device", POINTER(c_char)),
        ("device_reason", POINTER(c_char)),
        ("vocab", c_int),
        ("context", c_int),
        ("sequences", c_int),
        ("step_tokens", c_int),
        ("layers", c_int),
        ("hidden", c_int),
        ("max_top_k", c_int),
        ("max_beams", c_int),
        ("kind", c_int),
        ("source_context", c_int),
        ("pooled", c_int),
        ("types", c_int),
        ("input", c_int),
        ("labels", c_int),
        ("scoring", c_int),
        ("has_tokenizer", c_bool),
        ("weight_bytes", c_uint64),
        ("engine_bytes", c_uint64),
        ("workspace_bytes", c_uint64),
        ("kv_tokens", c_uint64),
        ("kv_token_bytes", c_uint64),
        ("input_type", c_int),
        ("ordinal", c_int),
        ("has_chat", c_size_t),
        ("end_ids", POINTER(c_int32)),
        ("end_ids_count", c_size_t),
        ("plan", POINTER(c_char)),
        ("states", c_size_t),
        ("host_weight_bytes", c_uint64),
        ("host_layers", c_uint64),
        ("copy_bytes", c_uint64),
        ("copy_us", c_uint64),
    ]


class FtxMessage(Structure):
    _fields_ = [
        ("role", POINTER(c_char)),
        ("content", POINTER(c_char)),
        ("content_bytes", c_size_t),
    ]


class FtxChat(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("messages", POINTER(FtxMessage)),
        ("count", c_size_t),
        ("json", POINTER(c_char)),
        ("json_bytes", c_size_t),
        ("tools", POINTER(c_char)),
        ("variables", POINTER(c_char)),
        ("template_name", POINTER(c_char)),
        ("add_generation_prompt", c_bool),
        ("time", c_uint64),
    ]


class FtxRequest(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("text", POINTER(c_char)),
        ("text_bytes", c_size_t),
        ("ids", POINTER(c_int32)),
        ("ids_count", c_size_t),
        ("no_bos", c_bool),
        ("literal", c_bool),
        ("truncate", c_int),
        ("max_prompt", c_int),
        ("max_new", c_int),
        ("min_new", c_int),
        ("prefix", POINTER(c_int32)),
        ("prefix_count", c_size_t),
        ("temperature", c_float),
        ("top_k", c_int),
        ("top_p", c_float),
        ("min_p", c_float),
        ("typical_p", c_float),
        ("repetition_penalty", c_float),
        ("repetition_window", c_int),
        ("presence_penalty", c_float),
        ("frequency_penalty", c_float),
        ("no_repeat_ngram", c_int),
        ("seed", c_uint64),
        ("samples", c_int),
        ("sample", c_int),
        ("bias_ids", POINTER(c_int32)),
        ("bias_values", POINTER(c_float)),
        ("bias_count", c_size_t),
        ("bad_ids", POINTER(c_int32)),
        ("bad_lengths", POINTER(c_size_t)),
        ("bad_count", c_size_t),
        ("bad_words", POINTER(POINTER(c_char))),
        ("bad_words_count", c_size_t),
        ("stop_ids", POINTER(c_int32)),
        ("stop_ids_count", c_size_t),
        ("stop", POINTER(POINTER(c_char))),
        ("stop_count", c_size_t),
        ("ignore_eos", c_bool),
        ("beams", c_int),
        ("length_penalty", c_float),
        ("early_stopping", c_int),
        ("n_best", c_int),
        ("beam_groups", c_int),
        ("diversity_rate", c_float),
        ("logprobs", c_bool),
        ("logits", c_bool),
        ("user", c_void_p),
        ("cache_salt", c_uint64),
        ("forced_bos", c_int32),
        ("forced_eos", c_int32),
        ("priority", c_int),
        ("deadline_ms", c_int),
        ("fair_key", c_uint64),
        ("top_logprobs", c_int),
        ("prompt_logprobs", c_int),
        ("mask", CFUNCTYPE(c_bool, c_void_p, c_int, POINTER(c_int32), c_size_t, POINTER(c_uint32))),
        ("mask_user", c_void_p),
        ("states", c_size_t),
    ]


class FtxTop(Structure):
    _fields_ = [
        ("id", c_int32),
        ("logprob", c_float),
    ]


class FtxEvent(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("request", c_uint64),
        ("user", c_void_p),
        ("sample", c_int),
        ("token", c_int32),
        ("logprob", c_float),
        ("finish", c_int),
        ("text", POINTER(c_char)),
        ("text_bytes", c_size_t),
        ("hypotheses", c_size_t),
        ("prompt_tokens", c_size_t),
        ("cached_tokens", c_size_t),
        ("queued_seconds", c_double),
        ("first_seconds", c_double),
        ("seconds", c_double),
        ("top", POINTER(FtxTop)),
        ("top_count", c_size_t),
        ("prompt_first", c_size_t),
        ("prompt_count", c_size_t),
        ("prompt_logprobs", POINTER(c_float)),
        ("prompt_top", POINTER(FtxTop)),
        ("states", POINTER(c_float)),
        ("states_first", c_size_t),
        ("states_count", c_size_t),
    ]


class FtxSteps(Structure):
    _fields_ = [
        ("steps", c_uint64),
        ("rows", c_uint64),
        ("tokens", c_uint64),
        ("seconds", c_double),
    ]


class FtxStats(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("waiting", c_size_t),
        ("running", c_size_t),
        ("pages", c_size_t),
        ("free_pages", c_size_t),
        ("idle_pages", c_size_t),
        ("requests", c_uint64),
        ("prompt_tokens", c_uint64),
        ("cached_tokens", c_uint64),
        ("preemptions", c_uint64),
        ("recomputed_tokens", c_uint64),
        ("new_tokens", c_uint64),
        ("waiting_tokens", c_uint64),
        ("swaps", c_uint64),
        ("swapped", c_size_t),
        ("swap_pages", c_size_t),
        ("free_swap_pages", c_size_t),
        ("decode", FtxSteps),
        ("mixed", FtxSteps),
        ("prompt", FtxSteps),
        ("compose_seconds", c_double),
        ("gap_seconds", c_double),
    ]


class FtxHypothesis(Structure):
    _fields_ = [
        ("ids", POINTER(c_int32)),
        ("count", c_size_t),
        ("logprobs", POINTER(c_float)),
        ("score", c_float),
        ("logprob", c_float),
        ("finish", c_int),
        ("text", POINTER(c_char)),
        ("text_bytes", c_size_t),
    ]


class FtxEncode(Structure):
    _fields_ = [
        ("size", c_size_t),
        ("count", c_size_t),
        ("text", POINTER(POINTER(c_char))),
        ("text_bytes", POINTER(c_size_t)),
        ("pair", POINTER(POINTER(c_char))),
        ("pair_bytes", POINTER(c_size_t)),
        ("truncate", c_int),
        ("max_tokens", c_int),
        ("literal", c_bool),
        ("ids", POINTER(c_int32)),
        ("types", POINTER(c_int32)),
        ("input", POINTER(c_float)),
        ("lengths", POINTER(c_int32)),
        ("stride", c_size_t),
        ("hidden", POINTER(c_float)),
        ("hidden_rows", c_size_t),
        ("pooled", POINTER(c_float)),
        ("tokens", POINTER(c_int32)),
        ("errors", POINTER(FtxError)),
        ("on_device", c_bool),
        ("stream", c_void_p),
        ("text_ids", POINTER(c_int32)),
    ]


class FtxProfile(Structure):
    _fields_ = [
        ("kernel", POINTER(c_char)),
        ("launches", c_uint64),
        ("time_us", c_double),
        ("matmul", c_bool),
    ]


FUNCTIONS = {  # name: (result, [arguments])
    "ftx_version": (POINTER(c_char), []),
    "ftx_version_number": (c_int, []),
    "ftx_model_open": (c_int, [POINTER(c_char), POINTER(FtxOptions), POINTER(c_void_p), POINTER(FtxError)]),
    "ftx_rank_run": (c_int, [POINTER(c_char), POINTER(FtxOptions), POINTER(c_int), POINTER(FtxError)]),
    "ftx_model_describe": (c_int, [c_void_p, POINTER(FtxModelInfo)]),
    "ftx_model_label": (POINTER(c_char), [c_void_p, c_int, POINTER(c_size_t)]),
    "ftx_model_close": (None, [c_void_p]),
    "ftx_tokenize": (c_int, [c_void_p, POINTER(c_char), c_size_t, c_uint, POINTER(c_int32), c_size_t, POINTER(c_size_t), POINTER(FtxError)]),
    "ftx_detokenize": (c_int, [c_void_p, POINTER(c_int32), c_size_t, c_bool, POINTER(c_char), c_size_t, POINTER(c_size_t), POINTER(FtxError)]),
    "ftx_token_bytes": (POINTER(c_char), [c_void_p, c_int32, POINTER(c_size_t), POINTER(c_bool)]),
    "ftx_chat": (c_int, [c_void_p, POINTER(FtxChat), POINTER(c_int32), c_size_t, POINTER(c_size_t), POINTER(FtxError)]),
    "ftx_chat_text": (c_int, [c_void_p, POINTER(FtxChat), POINTER(c_char), c_size_t, POINTER(c_size_t), POINTER(FtxError)]),
    "ftx_request_fill": (c_int, [c_void_p, POINTER(FtxRequest), POINTER(FtxError)]),
    "ftx_engine_open": (c_int, [c_void_p, POINTER(FtxOptions), POINTER(c_void_p), POINTER(FtxError)]),
    "ftx_engine_submit": (c_int, [c_void_p, POINTER(FtxRequest), POINTER(c_uint64), POINTER(FtxError)]),
    "ftx_engine_step": (c_int, [c_void_p, POINTER(FtxEvent), c_size_t, POINTER(c_size_t), POINTER(FtxError)]),
    "ftx_engine_busy": (c_bool, [c_void_p]),
    "ftx_engine_read_stats": (c_int, [c_void_p, POINTER(FtxStats)]),
    "ftx_engine_cancel": (c_int, [c_void_p, c_uint64, POINTER(FtxError)]),
    "ftx_engine_post": (c_int, [c_void_p, POINTER(FtxRequest), POINTER(c_uint64), POINTER(FtxError)]),
    "ftx_engine_post_cancel": (c_int, [c_void_p, c_uint64, POINTER(FtxError)]),
    "ftx_engine_wait": (c_bool, [c_void_p, c_int]),
    "ftx_engine_wake": (None, [c_void_p]),
    "ftx_engine_hypotheses": (POINTER(FtxHypothesis), [c_void_p, c_uint64, POINTER(c_size_t)]),
    "ftx_engine_logits": (POINTER(c_float), [c_void_p, c_uint64]),
    "ftx_engine_score": (c_int, [c_void_p, POINTER(c_int32), c_size_t, POINTER(c_float), POINTER(FtxError)]),
    "ftx_engine_score_logits": (c_int, [c_void_p, POINTER(c_int32), c_size_t, POINTER(c_float), POINTER(c_float), POINTER(FtxError)]),
    "ftx_engine_encode": (c_int, [c_void_p, POINTER(FtxEncode), POINTER(FtxError)]),
    "ftx_engine_profile": (c_int, [c_void_p, c_bool, POINTER(POINTER(FtxProfile)), POINTER(c_size_t), POINTER(FtxError)]),
    "ftx_engine_bench": (c_int, [c_void_p, c_int, c_int, c_int, c_int, POINTER(c_double), POINTER(c_double), POINTER(c_double), POINTER(FtxError)]),
    "ftx_engine_bench_mixed": (c_int, [c_void_p, c_int, c_int, c_int, c_int, POINTER(c_double), POINTER(c_double), POINTER(c_double), POINTER(FtxError)]),
    "ftx_engine_trace_begin": (c_int, [c_void_p, c_size_t, POINTER(FtxError)]),
    "ftx_engine_trace_end": (c_int, [c_void_p, POINTER(c_char), POINTER(FtxError)]),
    "ftx_engine_close": (None, [c_void_p]),
    "ftx_status_name": (POINTER(c_char), [c_int]),
}
