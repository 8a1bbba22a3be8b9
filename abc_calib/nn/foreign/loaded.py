"""A folder of a model as its users load it: with its own tokenizer and settings of ``generate``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from abc_calib.errors import UsageError
from abc_calib.nn.foreign.folder import load as read_model
from abc_calib.nn.foreign.inject import restore
from abc_calib.nn.foreign.sites import explain
from tasks.written import squeezed


class LoadedFolder:
    """A model, with its lines if it has some, and its tokenizer; from texts to texts.

    ``UsageError`` for a folder that does not load.
    """

    def __init__(self, path: Path):
        from transformers import AutoTokenizer

        contents = read_model(path, lined=True)
        self.network = contents.network
        if contents.lines is not None:
            restore(self.network, self.network.config.abc_calib)
        try:
            self.words: Any = AutoTokenizer.from_pretrained(path, local_files_only=True)
        except Exception as error:  # whatever its code raises
            raise UsageError(f"the tokenizer in {path} does not load ({explain(error)})") from None
        ends = self.network.generation_config.eos_token_id
        self.ends = torch.tensor(ends if isinstance(ends, list) else [ends])

    def answers(self, texts: Sequence[str], steps: int, most: int) -> list[str | None]:
        """What ``generate()`` writes for each source, without spaces; None if it writes no end.

        At most ``steps`` tokens, or fewer if the folder's settings say so. Sources of one length
        are run together, without padding, but at most ``most`` of them.
        """
        read = [self.words(text) for text in texts]
        outputs: dict[int, str | None] = {}
        for size in sorted({len(encoding["input_ids"]) for encoding in read}):
            rows = [row for row, encoding in enumerate(read) if len(encoding["input_ids"]) == size]
            for first in range(0, len(rows), most):
                group = rows[first : first + most]
                written = self._written([read[row] for row in group], steps)
                outputs |= dict(zip(group, written, strict=True))
        return [outputs[row] for row in range(len(texts))]

    @torch.inference_mode()
    def _written(self, read: Sequence[Any], steps: int) -> list[str | None]:
        names = [name for name in ("input_ids", "attention_mask") if name in read[0]]
        inputs = {name: torch.tensor([encoding[name] for encoding in read]) for name in names}
        limit, begun = self.network.generation_config, inputs["input_ids"].shape[1]
        begun = 1 if self.network.config.is_encoder_decoder else begun
        allowed = limit.max_new_tokens or (limit.max_length - begun if limit.max_length else steps)
        try:
            written = self.network.generate(**inputs, max_new_tokens=min(allowed, steps))
        except Exception as error:  # whatever its code raises
            return [f"an error: {explain(error)}"] * len(read)
        written = written[:, begun:]
        ended = torch.isin(written, self.ends).any(1).tolist()
        texts = (squeezed(self.words.decode(ids, skip_special_tokens=True)) for ids in written)
        return [text if end else None for text, end in zip(texts, ended, strict=True)]
