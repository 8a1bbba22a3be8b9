"""Rows of padding, taken out and put back."""

from __future__ import annotations

import torch
from hypothesis import given
from hypothesis import strategies as st

from abc_calib.nn.padding import Unpadded


@given(st.integers(1, 4), st.integers(0, 5), st.randoms(use_true_random=False))
def test_rows_come_back_where_they_were_and_padding_as_zeros(samples, steps, random):
    mask = torch.tensor([[random.random() < 0.6 for _ in range(steps)] for _ in range(samples)])
    mask = mask.view(samples, steps).bool()
    x = torch.randn(samples, steps, 3, dtype=torch.float64, requires_grad=True)
    kept = Unpadded.of(mask)
    rows = kept.unpad(x)
    back = kept.pad(rows)
    assert torch.equal(rows.flatten(0, -2), x[mask])
    assert torch.equal(back, x * mask[..., None])
    if x.numel():
        assert torch.autograd.gradcheck(kept.unpad, x)
        assert torch.autograd.gradcheck(kept.pad, rows.detach().requires_grad_())
