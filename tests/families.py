"""Tiny models of many families of transformers, made from their configurations."""

from __future__ import annotations

from typing import Any

import torch
from others import IDS, WORDS, tf

WIDTH, LAYERS, HEADS, PLACES = 16, 2, 4, 24
FLAT: dict[str, Any] = {
    "hidden_size": WIDTH,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "intermediate_size": 2 * WIDTH,
    "max_position_embeddings": PLACES,
}
GROUPED = FLAT | {"num_key_value_heads": 2}
SMALL = GROUPED | {"head_dim": 4}
EXPERTS = {
    **{"num_experts": 2, "num_local_experts": 2, "num_experts_per_tok": 1, "n_routed_experts": 2},
    **{"moe_intermediate_size": 8, "shared_expert_intermediate_size": 8},
}
LATENT = EXPERTS | {
    **{"kv_lora_rank": 8, "q_lora_rank": 8, "qk_rope_head_dim": 4, "qk_nope_head_dim": 4},
    **{"num_key_value_heads": HEADS, "v_head_dim": 6, "first_k_dense_replace": 1},
    **{"n_group": 1, "topk_group": 1},
}
OLD = {"n_embd": WIDTH, "n_layer": LAYERS, "n_head": HEADS, "n_positions": PLACES}
SEQ2SEQ: dict[str, Any] = {
    **{"d_model": WIDTH, "encoder_layers": 1, "decoder_layers": LAYERS, "dropout": 0.0},
    **{"encoder_attention_heads": HEADS, "decoder_attention_heads": HEADS, "init_std": 0.3},
    **{"encoder_ffn_dim": 2 * WIDTH, "decoder_ffn_dim": 2 * WIDTH, "forced_eos_token_id": None},
    **{"decoder_start_token_id": 2, "max_position_embeddings": PLACES},
}
T5 = {
    **{"d_model": WIDTH, "d_kv": 4, "d_ff": 2 * WIDTH, "num_heads": HEADS, "dropout_rate": 0.0},
    **{"num_layers": LAYERS, "num_decoder_layers": LAYERS, "decoder_start_token_id": 0},
}
FULL = {"layer_types": ["full_attention"] * LAYERS}
CAUSAL, GIVING = "ForCausalLM", "ForConditionalGeneration"
ALIKE: tuple[tuple[str, dict[str, Any], str], ...] = (
    (
        CAUSAL,
        FLAT,
        "BioGPT=BioGpt, BLOOM=Bloom, Falcon, Fuyu, GPT-BigCode=GPTBigCode, GPT-NeoX=GPTNeoX, "
        "MPT=Mpt, Persimmon, Phi, RWKV=Rwkv, StarCoder 2=Starcoder2",
    ),
    (
        CAUSAL,
        GROUPED,
        "Apertus, Arcee, Cohere, EXAONE 4=Exaone4, Granite, Llama, Mistral, OLMo 2=Olmo2, "
        "OLMo 3=Olmo3, Phi-3=Phi3, Qwen2, SmolLM3, StableLM=StableLm",
    ),
    (
        CAUSAL,
        SMALL,
        "Cohere 2=Cohere2, Ernie 4.5=Ernie4_5, Gemma, Gemma 2=Gemma2, Gemma 3=Gemma3, GLM-4=Glm4, "
        "Helium, Ministral 3=Ministral3, Nemotron, Qwen3",
    ),
    (CAUSAL, GROUPED | EXPERTS, "Mixtral, OLMoE=Olmoe, Qwen2-MoE=Qwen2Moe"),
    (CAUSAL, SMALL | EXPERTS, "GPT-OSS=GptOss, Qwen3-MoE=Qwen3Moe"),
    (CAUSAL, FLAT | LATENT, "DeepSeek-V2=DeepseekV2, DeepSeek-V3=DeepseekV3"),
    (CAUSAL, OLD | {"rotary_dim": 4}, "CodeGen, GPT-J=GPTJ"),
    (GIVING, T5, "LongT5, mT5=MT5, T5, UMT5"),
    (GIVING, SEQ2SEQ, "BART=Bart, Blenderbot, M2M100, mBART=MBart, Pegasus, PLBart"),
)
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    name: ((of or name) + end, shape)
    for end, shape, names in ALIKE
    for name, _, of in (one.partition("=") for one in names.split(", "))
}
SHAPES |= {
    "CTRL": ("CTRLLMHeadModel", OLD | {"dff": 32}),
    "Falcon-H1": (
        "FalconH1ForCausalLM",
        SMALL
        | {"mamba_d_ssm": 16, "mamba_n_heads": 4, "mamba_d_head": 4, "mamba_d_state": 4}
        | {"mamba_n_groups": 1, "mamba_chunk_size": 8},
    ),
    "Gemma 3 (full attention)": ("Gemma3ForCausalLM", SMALL | FULL),
    "GPT-2": ("GPT2LMHeadModel", OLD),
    "GPT-Neo": (
        "GPTNeoForCausalLM",
        FLAT | {"num_layers": LAYERS, "attention_types": [[["global"], LAYERS]]},
    ),
    "LED": ("LEDForConditionalGeneration", SEQ2SEQ | {"attention_window": 4}),
    "Llama 4": ("Llama4ForCausalLM", SMALL | EXPERTS | {"intermediate_size_mlp": 32}),
    "Mamba": ("MambaForCausalLM", FLAT | {"state_size": 4}),
    "Marian": ("MarianMTModel", SEQ2SEQ),
    "Mistral (full attention)": ("MistralForCausalLM", GROUPED | {"sliding_window": None}),
    "NLLB-MoE": (
        "NllbMoeForConditionalGeneration",
        SEQ2SEQ | {"num_experts": 2, "encoder_sparse_step": 1, "decoder_sparse_step": 1},
    ),
    "OPT": (
        "OPTForCausalLM",
        FLAT | {"ffn_dim": 2 * WIDTH, "word_embed_proj_dim": WIDTH, "dropout": 0.0},
    ),
    "ProphetNet": (
        "ProphetNetForConditionalGeneration",
        {
            **{"hidden_size": WIDTH, "num_encoder_layers": 1, "num_decoder_layers": LAYERS},
            **{"num_encoder_attention_heads": HEADS, "num_decoder_attention_heads": HEADS},
        },
    ),
    "Qwen2 (sliding window)": (
        "Qwen2ForCausalLM",
        GROUPED | {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 0},
    ),
    "Switch": (
        "SwitchTransformersForConditionalGeneration",
        T5 | {"num_experts": 2, "num_sparse_encoder_layers": 1, "num_sparse_decoder_layers": 1},
    ),
    "XGLM": (
        "XGLMForCausalLM",
        {**{"d_model": WIDTH, "num_layers": LAYERS, "attention_heads": HEADS, "ffn_dim": 32}},
    ),
}


FAMILIES = {
    **{"llama": "Llama", "gpt2": "GPT-2", "gpt_neox": "GPT-NeoX"},
    **{"qwen2": "Qwen2", "t5": "T5", "bart": "BART"},
}
"""Those that most is tried with, by their ``model_type``."""
WIDE = ("hidden_size", "intermediate_size", "d_model", "d_kv", "d_ff")


def tiny(family: str, times: int = 1, **more: Any) -> Any:
    """A model of a family with random weights, as many times as wide."""
    kind, shape = SHAPES[FAMILIES.get(family, family)]
    wider = {name: times * size for name, size in shape.items() if name in WIDE}
    made = getattr(tf, kind)
    return made(made.config_class(**(IDS | shape | wider | more)))


def of_family(family: str) -> Any:
    """The same, none of its weights zero, and its own sinusoids."""
    torch.manual_seed(0)
    model = tiny(family).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if weight.dim() > 1 and "embed_positions" not in name:
                weight.normal_(0, 0.1)
    assert model.get_input_embeddings().num_embeddings == len(WORDS)
    return model
