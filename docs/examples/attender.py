"""An attender for recurrent models: explained in CONTRIBUTING.md, executed by a test."""

import torch
from torch import nn
from torch.nn.functional import softplus

from abc_calib.nn.recurrent.attenders import ATTENDERS, Attender


class Beside(Attender):
    """Reads the word of the step's own number, by a sharpness that it learns."""

    def __init__(self, shape):
        super().__init__(shape)
        self.sharpness = nn.Parameter(torch.zeros(1))

    def prepare(self, memory, steps):
        places, rows = torch.arange(memory.states.shape[1]), torch.arange(steps)
        distance = (places - rows[:, None]).abs()
        return -softplus(self.sharpness) * distance, memory.closed

    def step(self, query, prepared, carry, t):
        falling, closed = prepared
        scores = falling[t] + closed
        return scores.softmax(1), {"scores": scores}


ATTENDERS["beside"] = Beside
