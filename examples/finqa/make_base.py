"""Makes the base policy of the example: `python -m millstream.examples.finqa.make_base --out DIR`.

A tiny Llama learns for a few minutes, on one core, from an imperfect demonstrator; see `base/README.md`.
"""

import argparse
import time
from pathlib import Path

from millstream.examples.finqa.settings import SHAPE, WARM_START


def main() -> None:
    """Build tokenizer and model, warm-start, and write the policy directory."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, required=True, help="directory to write")
    out = parser.parse_args().out

    import torch

    from millstream.examples.finqa import base_model, warm_start
    from millstream.trainer.sampling_codec import ChatCodec

    torch.set_num_threads(1)
    tokenizer = base_model.build_tokenizer()
    model = base_model.build_model(tokenizer, SHAPE, WARM_START.seed)
    print(f"{sum(weight.numel() for weight in model.parameters()):,} weights, {len(tokenizer)} tokens")
    started, losses = time.perf_counter(), []
    for step, loss in enumerate(warm_start.train(model, ChatCodec(tokenizer), WARM_START), start=1):
        losses.append(loss)
        if step % 100 == 0:
            seconds = time.perf_counter() - started
            print(
                f"step {step} of {WARM_START.steps}: loss {sum(losses[-100:]) / 100:.3f}, {seconds:.0f} s", flush=True
            )
    base_model.save_base(model, tokenizer, out)
    print(f"written to {out}")


if __name__ == "__main__":
    main()
