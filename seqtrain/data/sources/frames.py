"""Made-up movies and what is seen in them: noisy frames of objects, each as it moves, and a sentence of them all."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from seqtrain.data.sources.labelled_series import numbered_series
from seqtrain.data.sources.vectors import VectorSource
from seqtrain.data.values.series import Series
from seqtrain.errors import UserError

OBJECTS = ("cat", "dog", "ball", "car", "bird", "boat", "kite", "train")
MOVES = {"left": (-1, 0), "right": (1, 0), "up": (0, 1), "down": (0, -1)}
LOOKS = 8  # numbers of a frame that tell the object; two more tell its place
SHORTEST, LONGEST = 3, 6  # frames of an object
STEP = 0.5  # that an object moves from frame to frame


class Movie(NamedTuple):
    """One sequence of frames."""

    frames: Float[np.ndarray, "T F"]
    sentence: str
    owner: list[int]  # of each frame, which object of the sentence is in it


class Frames(VectorSource):
    """Movies of one to `most` objects, one after another: `a cat moves left then a kite moves up`.

    A frame holds the look of its object, a vector of unit length that is the same in all movies, and its place; both
    with noise. One frame alone does not tell how the object moves.
    """

    fields = ("values", "target")

    def __init__(
        self,
        *,
        size: int = 5000,
        most: int = 3,
        noise: float = 0.1,
        seed: int = 0,
        validation_fraction: float = 0.1,
        test_fraction: float = 0.1,
    ) -> None:
        """Set the sizes.

        Args:
            size: Movies in all splits together.
            most: Most objects of a movie, all different.
            noise: Standard deviation of the noise on each number of a frame.
            seed: Seed of all that is drawn.
            validation_fraction: Fraction of the movies that is validation.
            test_fraction: Fraction of the movies that is test.
        """
        super().__init__(missing="mask", validation_fraction=validation_fraction, test_fraction=test_fraction)
        if most > len(OBJECTS):
            raise UserError(f"data.most={most}: there are {len(OBJECTS)} objects; use at most {len(OBJECTS)}")
        self.size, self.most, self.noise, self.seed = size, most, noise, seed

    def describe(self) -> dict[str, Any]:
        return {"source": "frames", "seed": self.seed, "series": self.size, "most": self.most, "noise": self.noise}

    @cached_property
    def movies(self) -> list[Movie]:
        """All movies; one more changes none before it."""
        # Not by the seed: a run may be asked about movies of another one.
        looks = np.random.Generator(np.random.PCG64(0)).standard_normal((len(OBJECTS), LOOKS))
        looks /= np.linalg.norm(looks, axis=1, keepdims=True)
        return [
            self._draw(np.random.Generator(np.random.PCG64([self.seed, number])), looks) for number in range(self.size)
        ]

    def _draw(self, generator: np.random.Generator, looks: Float[np.ndarray, "n L"]) -> Movie:
        count = int(generator.integers(1, self.most + 1))
        frames, clauses, owner = [], [], []
        for place, thing in enumerate(generator.permutation(len(OBJECTS))[:count]):
            move = str(generator.choice(list(MOVES)))
            length = int(generator.integers(SHORTEST, LONGEST + 1))
            way = generator.uniform(-1, 1, 2) + STEP * np.arange(length)[:, None] * np.array(MOVES[move])
            frames.append(np.concatenate([np.tile(looks[thing], (length, 1)), way], 1))
            clauses.append(f"a {OBJECTS[thing]} moves {move}")
            owner += [place] * length
        whole = np.concatenate(frames)
        return Movie(whole + self.noise * generator.standard_normal(whole.shape), " then ".join(clauses), owner)

    def read(self) -> Series:
        frames = [movie.frames for movie in self.movies]
        return numbered_series(np.concatenate(frames), list(map(len, frames)), "value")

    def answers(self, field: str) -> Sequence[str]:
        return [movie.sentence for movie in self.movies]
