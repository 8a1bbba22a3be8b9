"""``pipeline("abc-calib", model=FOLDER)``: a text in, what the model writes out.

``transformers`` has none of its own from text to text from release 5 on.
"""

from __future__ import annotations

from typing import Any

from transformers import Pipeline


class Text2Text(Pipeline):
    """Greedy decoding, as ``generate`` does it."""

    _load_tokenizer: Any = True
    model: Any
    tokenizer: Any

    def _sanitize_parameters(self, **given: Any) -> tuple[dict[str, Any], ...]:
        return {}, given, {}

    def preprocess(self, input_: str, **_: Any) -> Any:
        return self.tokenizer(input_, return_tensors="pt")

    def _forward(self, input_tensors: Any, **given: Any) -> Any:
        return self.model.generate(**input_tensors, **given)

    def postprocess(self, model_outputs: Any, **_: Any) -> list[dict[str, str]]:
        texts = (self.tokenizer.decode(ids, skip_special_tokens=True) for ids in model_outputs)
        return [{"generated_text": text} for text in texts]
