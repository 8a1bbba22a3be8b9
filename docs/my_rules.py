"""Two rules of your own on words, one of them with rows: explained in docs/rules.md."""

from tasks import WordTask


class RunningSum(WordTask):
    """Running sums modulo seven: ``3 5 6 -> 3 1 0``."""

    name = "running_sum"
    symbols = tuple("0123456")

    def step(self, state, word):
        total = (state + int(word)) % 7
        return total, str(total)


class Spread(WordTask):
    """A cell is 1 next if exactly one neighbour is 1: ``2 : 0 0 1 0 -> 0 1 0 1 | 1 0 0 0``."""

    name = "spread"
    symbols = ("0", "1")
    counted = True  # a source begins with the number of rows
    ahead = 1  # a cell also depends on the next one
    train_length = 5
    start = ("0", "0")  # the two cells before the first one are 0

    def step(self, state, cell):
        left, here = state
        return (here, cell), str(int(left) ^ int(cell))

    def end(self, state):
        return state[:1]

    def step_below(self, state, above):
        return self.step(state, above)
