"""The tokenizer of one of our own models, as ``transformers`` reads it: a token a symbol.

A source is written as a person writes it and put between SOS and EOS. Numbers are to be written as
wide as the model reads them, and answers are what the model writes, from their last digit on.
"""

from __future__ import annotations

from typing import Any

from abc_calib.data.vocabulary import EOS, PAD, SOS, Vocabulary

FILES = ("tokenizer.json", "tokenizer_config.json")


def tokenizer_files(vocabulary: Vocabulary) -> dict[str, dict[str, Any]]:
    """Both files, as plain data."""
    letters = all(len(symbol) == 1 for symbol in vocabulary.symbols)
    special = {name: vocabulary.ids[name] for name in (SOS, EOS, PAD)}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False}
    added = [{"id": i, "content": name, **plain, "special": True} for name, i in special.items()]
    split: dict[str, Any] = {"type": "WhitespaceSplit"}
    if letters:
        rule = {"type": "Split", "pattern": {"Regex": "."}, "behavior": "Isolated", "invert": False}
        split = {"type": "Sequence", "pretokenizers": [split, rule]}
    ends = [{"SpecialToken": {"id": name, "type_id": 0}} for name in (SOS, EOS)]
    around = [ends[0], {"Sequence": {"id": "A", "type_id": 0}}, ends[1]]
    templates = {n: {"id": n, "ids": [special[n]], "tokens": [n]} for n in (SOS, EOS)}
    second = {"Sequence": {"id": "B", "type_id": 0}}
    template = {"single": around, "pair": [*around, second], "special_tokens": templates}
    tokenizer = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": added,
        "normalizer": None,
        "pre_tokenizer": split,
        "post_processor": {"type": "TemplateProcessing", **template},
        "decoder": {"type": "Fuse"} if letters else None,
        "model": {"type": "WordLevel", "vocab": vocabulary.ids, "unk_token": "<unknown>"},
    }
    about = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        **{"bos_token": SOS, "eos_token": EOS, "pad_token": PAD},
        "model_input_names": ["input_ids", "attention_mask"],
        "clean_up_tokenization_spaces": False,
    }
    return dict(zip(FILES, (tokenizer, about), strict=True))
