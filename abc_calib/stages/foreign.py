"""The function that makes a run of an external model: ``adopt``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from abc_calib.config import RunConfig, TrainOptions
from abc_calib.data import Batch
from abc_calib.data.pairs import PairData, PairVocabulary
from abc_calib.errors import UsageError
from abc_calib.evaluation import exact_matches
from abc_calib.geometry import LineBias
from abc_calib.nn.build import FOREIGN
from abc_calib.nn.foreign.checks import try_out
from abc_calib.nn.foreign.folder import ends_of, read_model
from abc_calib.nn.foreign.inject import MARKS, record_of
from abc_calib.nn.foreign.model import Foreign
from abc_calib.runs import Run
from abc_calib.runs.records import CALIBRATION, write_record
from abc_calib.stages.judging import ignore
from abc_calib.version import __version__
from tasks.pair_files import read_pairs
from tasks.pairs import FilePairs
from tasks.written import rule_of, wrong_pairs

SAMPLES = 64
"""Pairs on which a model is tried before it is adopted."""
JUDGED = 2000
"""Pairs that it has to answer."""


def adopt(
    folder: Path | str,
    data: Path | str,
    delimiters: str,
    *,
    task: str = "",
    seed: int = 0,
    lined: bool = False,
    out: Path | str | None = None,
    on_checked: Callable[[float], None] = ignore,
) -> Run:
    """A run of a model of ``transformers`` in a folder, with its tokenizer, on pairs of a file.

    ``data``: JSON lines of ``source`` and ``target``. ``delimiters``: tokens that end the parts of
    a source, in their order, with commas between. ``task``: the rule that the pairs have to follow,
    such as ``addition zeros``. ``lined``: may the model have lines already, as one that was
    calibrated has? ``on_checked`` is called with what a bias of zeros changes of its logits at
    most. Targets end with the first end token of the folder's settings, and are read behind their
    sources by a decoder-only model. Raises ``UsageError`` for a model or pairs that cannot be
    taken, before a run is made.
    """
    network, shape = read_model(folder)
    lines = LineBias.from_dict(record["lines"]) if (record := record_of(network)) else None
    if lines is not None and not lined:
        raise UsageError(f"{folder} has lines already: give the model that it was made from")
    options = described(data, delimiters, task)
    options |= {"tokenizer": shape.folder, "eos": ends_of(network, Path(folder))[0]}
    if not network.config.is_encoder_decoder:
        options["joined"] = 1
    pairs = PairData(FilePairs(**options), TrainOptions(sampling="uniform", seed=seed))
    check_pairs(pairs, network)
    pairs = pairs.shortened(int(pairs.widths.max()))
    vocabulary = pairs.vocabulary
    around = {name: getattr(vocabulary, name) for name in ("prefix", "suffix", "closed")}
    shape = shape.model_copy(update=around)
    model = Foreign(shape, vocabulary.tokens).eval()
    model.network.load_state_dict(network.state_dict())
    if lines is None:
        batch = pairs.training(0, SAMPLES)
        on_checked(try_out(model, batch.source, batch.target))
    elif (marks := network.__dict__[MARKS]) != model.marks:
        raise UsageError(
            f"its lines count from the tokens {marks.delimiters} behind {marks.prefix}, and the "
            f"given delimiters are {model.marks.delimiters} behind {model.marks.prefix}: "
            "name those that it was calibrated with"
        )
    model.set_lines(lines)
    config = RunConfig(
        code_version=__version__,
        stage="calibrated" if lines else "vanilla",
        task="pairs",
        task_options=options,
        kind=FOREIGN,
        model=shape,
        train=pairs.options,
    )
    return _finished(config, model, pairs.validation(JUDGED), out)


def described(data: Path | str, delimiters: str, task: str = "") -> dict[str, Any]:
    """The options of the task that a file of pairs is, its rule found; wrong pairs are refused."""
    path = Path(data).resolve()
    pairs, sha256 = read_pairs(path)
    both = [*zip(pairs.source, pairs.target, strict=True)]
    aligned = len({(len(a), len(b)) for a, b in both}) == len({*map(len, pairs.source)})
    for where, strip in (("end in", str.rstrip), ("begin with", str.lstrip))[: 2 - aligned]:
        spaced = sum(target != strip(target) for target in pairs.target)
        if 0 < spaced < len(pairs):
            raise UsageError(
                f"{spaced} of {len(pairs)} targets in {path.name} {where} spaces, and nothing "
                "tells which: write all alike"
            )
    targets: dict[str, str] = {}
    for source, target in both:
        if targets.setdefault(source, target) != target:
            raise UsageError(
                f"pairs in {path.name} contradict each other: {source!r} has the targets "
                f"{targets[source]!r} and {target!r}: keep the right ones"
            )
    rule = rule_of(pairs, task)
    if task and rule is None:
        raise UsageError(f"the pairs in {path.name} are not {task}: most of them do not follow it")
    if rule is not None and (wrong := wrong_pairs(rule, pairs)):
        first = wrong[0]
        raise UsageError(
            f"{len(wrong)} of the {len(pairs)} pairs in {path.name} are wrong, if they are "
            f"{rule.task.name} as the others are: the first is pair {first + 1}, "
            f"{pairs.source[first]!r} with {pairs.target[first]!r}: mend or remove them"
        )
    options = {"data": str(path), "sha256": sha256, "delimiters": delimiters}
    return options | ({"rule": rule.name} if rule else {})


def check_pairs(pairs: PairData, network: Any) -> None:
    """``UsageError`` for pairs that say nothing about lines, or that the tokenizer hides."""
    vocab, sources = pairs.vocabulary, pairs.task.pairs.source
    size, tokens = vocab.size, network.get_input_embeddings().num_embeddings
    if size > tokens:
        raise UsageError(
            f"the tokenizer has {size} tokens and the model {tokens}: save both with as many, "
            f"with model.resize_token_embeddings({size})"
        )
    seq2seq = network.config.is_encoder_decoder
    check_tokens(vocab, (*sources, *pairs.task.pairs.target))
    named = list(vocab.named[:-1] if vocab.closed and vocab.suffix else vocab.named)
    for number, (row, source) in enumerate(zip(vocab.sources(sources), sources, strict=True), 1):
        ends = vocab.closed or row[-1] == vocab.named[-1]
        if [token for token in row if token in named] != named or not ends:
            names = " ".join(vocab.symbols[token] for token in named)
            raise UsageError(
                f"pair {number}, {source!r}, does not have the delimiters {names} in this order, "
                "each once: name those that each source has"
            )
    if vocab.closed and not (vocab.suffix and seq2seq):
        raise UsageError(
            f"{sources[0]!r} ends in no delimiter: name the one that closes a source last, and "
            "write it into each"
        )
    if vocab.suffix and not seq2seq:
        raise UsageError(
            f"the tokenizer ends sources with {vocab.symbols[vocab.suffix[0]]}, behind which a "
            "decoder-only model goes on writing: save it without (add_eos_token=False)"
        )
    widths = np.unique(pairs.widths).tolist()
    if len(widths) < 2:
        raise UsageError(
            f"all sources are {widths[0]} wide: give pairs of several lengths, so that lines can "
            "be distinguished from places"
        )


def check_tokens(vocab: PairVocabulary, texts: tuple[str, ...]) -> None:
    """``UsageError`` for texts that a tokenizer hides, special tokens, and digits in one token."""
    if unread := vocab.unread(texts):
        raise UsageError(
            f"the tokenizer has no token for {', '.join(map(repr, unread))}: leave them out of the "
            "pairs, or train a model with them"
        )
    tokens = {token for row in vocab.encoded(texts) for token in row}
    if special := tokens & vocab.special:
        raise UsageError(
            f"{vocab.symbols[min(special)]!r} stands in a text of the pairs, and is a special "
            "token of the tokenizer: leave it out, or name it as a delimiter"
        )
    for token in sorted(tokens):
        if sum(c.isdigit() for c in vocab.plain(token)) > 1:
            raise UsageError(
                f"the tokenizer merges digits: {vocab.symbols[token]!r} is one token: split them, "
                "with pre_tokenizers.Digits(individual_digits=True) or spaces, and train the model "
                "so"
            )


def _finished(config: RunConfig, model: Foreign, judged: Batch, out: Path | str | None) -> Run:
    """Make the run of a model that is trained already, and judge it."""
    right = float(exact_matches(model, judged).float().mean())

    def write_lines(folder: Path) -> None:
        if model.lines is not None:
            model.lines.save(folder / "bias.safetensors")
            write_record(folder / CALIBRATION, {"samples": 0, "accuracy": round(100 * right, 4)})

    run = Run.create(config, out, write_lines)
    run.save_model(model)
    judgement = {"validation_accuracy": round(100 * right, 3), "validation_samples": len(judged)}
    trained = {"steps": 0, "seconds": 0.0, "interpolated": right >= 0.999}
    run.save_result(trained | judgement)
    return run
