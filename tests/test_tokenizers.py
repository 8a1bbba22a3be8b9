"""Pairs in the tokens of tokenizers of many kinds: what is given to a model is what they write."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from others import as_ids, saved, tf, train, write_pairs
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

import abc_calib as abc
from abc_calib.config import ForeignOptions, TrainOptions
from abc_calib.data.pairs import PairData, PairVocabulary
from abc_calib.nn.foreign.model import tokenized
from abc_calib.stages.foreign import check_tokens
from tasks.pairs import FilePairs

SIGNS = "0123456789+="
EACH = pre_tokenizers.Split(Regex("."), "isolated")


def signs(*more: str, unknown: str = "<unk>") -> dict[str, int]:
    return {word: i for i, word in enumerate([unknown, "<s>", "</s>", *SIGNS, *more])}


def bpe(*more: str) -> Any:
    return Tokenizer(models.BPE(vocab=signs(*more), merges=[], unk_token="<unk>"))


def llama() -> Any:
    """As of Llama 2: ``▁`` before the text, and for each space."""
    made = bpe("▁")
    replaced = normalizers.Replace(" ", "▁")
    made.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), replaced])
    made.decoder = decoders.Sequence(
        [decoders.Replace("▁", " "), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    )
    return started(made)


def started(made: Any) -> Any:
    """With a token before each text."""
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    return made


def metaspace(scheme: str, split: bool = True) -> Any:
    made = bpe("▁", *(f"▁{sign}" for sign in SIGNS))
    made.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Metaspace(prepend_scheme=scheme), *[EACH] * split]
    )
    made.decoder = decoders.Metaspace(prepend_scheme=scheme)
    return made


def unigram() -> Any:
    """As of T5, with the first digit and what is before it in one token."""
    words = ["<unk>", "<s>", "</s>", *SIGNS, "▁", *(f"▁{sign}" for sign in SIGNS)]
    made = Tokenizer(models.Unigram([(word, -len(word)) for word in words], 0))
    made.pre_tokenizer = pre_tokenizers.Metaspace()
    made.decoder = decoders.Metaspace()
    return made


def byte_level(prefix: bool) -> Any:
    """As of GPT-2 and RoBERTa: a space is a part of the token behind it."""
    vocabulary = signs("Ġ", *(f"Ġ{sign}" for sign in SIGNS))
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[("Ġ", sign) for sign in SIGNS]))
    digits = pre_tokenizers.Digits(individual_digits=True)
    last = pre_tokenizers.ByteLevel(add_prefix_space=prefix, use_regex=False)
    made.pre_tokenizer = pre_tokenizers.Sequence([digits, last])
    if prefix:  # Digits first would put a space before each
        made.pre_tokenizer = last
    made.decoder = decoders.ByteLevel()
    return made


def word_piece() -> Any:
    """As of BERT: a digit behind another one is another token."""
    made = Tokenizer(models.WordPiece(signs(*(f"##{sign}" for sign in SIGNS)), unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    made.decoder = decoders.WordPiece()
    return made


def spaced() -> Any:
    made = Tokenizer(models.WordLevel(signs(" "), unk_token="<unk>"))
    made.pre_tokenizer = EACH
    return made


KINDS: dict[str, Any] = {
    "llama": llama,
    "metaspace always": lambda: metaspace("always"),
    "metaspace first": lambda: metaspace("first"),
    "metaspace never": lambda: metaspace("never"),
    "metaspace of a piece": lambda: metaspace("first", split=False),
    "unigram": unigram,
    "byte level": lambda: byte_level(prefix=False),
    "byte level, prefix space": lambda: byte_level(prefix=True),
    "word piece": word_piece,
    "spaces are tokens": spaced,
    "started": lambda: started(spaced()),
}
FORMS: dict[str, Any] = {
    "plain": "{}+{}=".format,
    "spaces around the sign": "{} + {} =".format,
    "spaces between": lambda a, b: " ".join(f"{a}+{b}="),
}


def data_of(kind: str, form: str, folder: Path) -> PairData:
    made = KINDS[kind]()
    made.add_special_tokens([AddedToken(name) for name in ("<unk>", "<s>", "</s>")])
    tf.PreTrainedTokenizerFast(tokenizer_object=made).save_pretrained(folder)
    between = " " if form == "spaces between" else ""
    numbers = [(7, 5), (12, 34), (905, 120), (9, 81), (4321, 5), (10, 9999)]
    pairs = [(FORMS[form](a, b), between + between.join(str(a + b))) for a, b in numbers]
    path = write_pairs(folder / "p.jsonl", pairs)
    task = FilePairs(str(path), str(folder), "+,=", 2, 1, rule="addition")
    return PairData(task, TrainOptions(length=4))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("kind", KINDS)
def test_a_stream_is_what_the_tokenizer_makes_of_source_and_target(kind, form, tmp_path):
    """By the tokenizer itself, of the whole text; whatever a source begins with is no digit."""
    data = data_of(kind, form, tmp_path)
    words = tf.PreTrainedTokenizerFast.from_pretrained(tmp_path)
    known, pairs = data.vocabulary, data.task.pairs
    batch = data.everything
    options = ForeignOptions(prefix=known.prefix, suffix=known.suffix, closed=known.closed)
    ids, mask = tokenized(batch.source, options, known.pad, stream=True)
    for row, (source, target) in enumerate(zip(pairs.source, pairs.target, strict=True)):
        written = batch.target[row][batch.target[row] != known.pad].tolist()
        assert [*ids[row][mask[row]].tolist(), *written] == [*words(source + target).input_ids, 2]
        assert "".join(known.text(written, " ").split()) == "".join(target.split())
    assert data.widths.tolist() == [1, 2, 3, 2, 4, 4] and data.task.unit == "digits"
    assert known.plain(int(batch.source[0, 1])) == pairs.source[0][0]
    for length in (1, 2, 3, 8, 9, 30):  # lengths are digits, and layouts count tokens
        problems = data.task.ones(length)
        batch, layout = data.lay_out(problems), data.layout_at(length)
        assert layout == data.layout(problems) and layout.keys == batch.source.shape[1]
        assert data.size_of(problems) == length
        assert data.output_steps(length) >= batch.target.shape[1]
        closes = torch.isin(batch.source[0], torch.tensor(known.named)).nonzero()
        assert closes[:, 0].tolist() == list(layout.closes[1:])


def test_targets_are_read_behind_their_sources_and_end_with_the_first_end_token(tmp_path):
    """A Llama that reverses two digits, with more tokens than its tokenizer has."""
    words = tf.PreTrainedTokenizerFast(tokenizer_object=llama())
    pairs = [(f"{a}=", f"{a}"[::-1]) for a in range(100)]
    torch.manual_seed(0)
    size = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4}
    ids = {"vocab_size": 24, "bos_token_id": 1, "eos_token_id": [2, 0]}
    model = tf.LlamaForCausalLM(tf.LlamaConfig(**size, **ids, intermediate_size=64))
    sources, _ = as_ids(words, pairs)
    wholes = [words(source + target).input_ids for source, target in pairs]
    targets = [[*ids[len(first) :], 2] for first, ids in zip(sources, wholes, strict=True)]
    train(model, sources, targets, 250, 1e-2)
    folder = saved(model, words, tmp_path / "model")
    run = abc.adopt(folder, write_pairs(tmp_path / "p.jsonl", pairs), "=")
    assert run.result is not None and run.result["validation_accuracy"] == 100
    assert run.config.task_options["eos"] == 2
    assert abc.predict(run, "73=").answer == "37"
    network = run.load_model().network
    assert network.config.vocab_size == 24
    assert network.generation_config.eos_token_id == 2


def test_a_decoder_that_panics_is_told_in_a_line(tmp_path):
    made = llama()
    made.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.Strip(" ", 1, 1)])
    made.save(str(tmp_path / "tokenizer.json"))
    task = FilePairs(str(write_pairs(tmp_path / "p.jsonl", [("1+2=", "3")])), str(tmp_path), "=", 2)
    with pytest.raises(abc.UsageError, match=r"decoder fails on .*mend the decoder in tokenizer"):
        PairVocabulary(task)


@pytest.mark.parametrize(
    ("model", "told"),
    [
        (models.BPE(vocab=signs(), merges=[]), "no token for '-', 'x'"),
        (models.Unigram([(word, -1.0) for word in signs()], 0), "no token for '-', 'x'"),
        (models.WordLevel(signs(), unk_token="none"), "cannot read '1x='"),
    ],
    ids=["drops", "unknown", "raises"],
)
def test_characters_that_a_tokenizer_loses_are_named(model, told, tmp_path):
    made = Tokenizer(model)
    made.pre_tokenizer = EACH
    made.add_tokens(["<to>"])
    made.save(str(tmp_path / "tokenizer.json"))
    path = write_pairs(tmp_path / "p.jsonl", [("12<to>", "3"), ("1x=", "-7")])
    vocabulary = PairVocabulary(FilePairs(str(path), str(tmp_path), "<to>", 2))
    check_tokens(vocabulary, ("12<to>", "3"))
    with pytest.raises(abc.UsageError, match=told):
        check_tokens(vocabulary, ("1x=", "-7"))


def test_a_problem_is_held_out_however_it_is_spaced(tmp_path):
    made = Tokenizer(models.WordLevel(signs(), unk_token="<unk>"))
    made.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.WhitespaceSplit(), EACH])
    made.add_special_tokens([AddedToken(name) for name in ("<unk>", "<s>", "</s>")])
    tf.PreTrainedTokenizerFast(tokenizer_object=made).save_pretrained(tmp_path)
    forms = (FORMS["plain"], FORMS["spaces around the sign"])
    pairs = [(form(a, a + 3), str(2 * a + 3)) for a in range(100, 300) for form in forms]
    path = write_pairs(tmp_path / "p.jsonl", pairs)
    task = FilePairs(str(path), str(tmp_path), "+,=", 2, 1, rule="addition")
    data = PairData(task, TrainOptions(length=3))
    held_out = {tuple(row.tolist()) for row in data.validation(400).source}
    seen = {tuple(row.tolist()) for step in range(40) for row in data.training(step, 64).source}
    assert len(held_out) > 5 and len(seen) > 100 and not held_out & seen
